/// The C interface of triage (docs/c.md): load policies, run them on batches, read the flags, reload while the program
/// runs.
///
///     const TriageApi* triage = triage_get_api(TRIAGE_C_VERSION);
///     TriageRuntime* runtime;
///     TriagePolicy* policy;
///     triage->create_runtime(NULL, &runtime);
///     triage->load_file(runtime, "repair.lua", &policy);
///     size_t count = 2;
///     DLManagedTensor* outputs[2];
///     if (triage->run(policy, inputs, 1, NULL, outputs, &count) != TRIAGE_OK) puts(triage->last_error()->message);
///
/// Errors: a function returns TRIAGE_OK, or another status; `last_error` then has the message. No exception leaves the
/// library. After a failure, what a function would have written through its pointers is null, 0 or unchanged, but for
/// RunInfo.
///
/// Threads: any number of threads may use everything here at once, also one handle. Callbacks may call everything, if
/// their comment says nothing else. The error of a call is kept for its thread: a handle is shared by threads, so its
/// last error would be that of any of them.
///
/// Ownership: who creates a handle frees it, in any order; what is freed is refused by later calls, until the
/// library uses the memory for a new handle. A handle may be freed while calls use it, by another thread or by a
/// callback: those calls come to their end, and the last of them destroys what it stood for. Text and arrays that a
/// call gets are read during the call only. Text that it gives says how long it lives. Null is refused where no comment
/// allows it.
///
/// Structs with a first member `size`: set it to sizeof the struct, and all else to 0 (`TriageRunOptions options =
/// {.size = sizeof options};`); 0 is always the default. Later versions
/// add members at the end, and accept the structs of earlier ones. Structs without `size` never change.
#ifndef TRIAGE_C_H
#define TRIAGE_C_H

#include <stddef.h>
#include <stdint.h>

/// DLManagedTensor and what belongs to it: from your own dlpack.h if it was included before or is found as
/// <dlpack/dlpack.h>, else here, with the same layout. If yours has another name, include it before this header.
#if !defined(DLPACK_DLPACK_H_) && defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3 } DLDeviceType;
typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;
typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLComplex = 5, kDLBool = 6 } DLDataTypeCode;
typedef struct {
  uint8_t code;  // a DLDataTypeCode
  uint8_t bits;
  uint16_t lanes;  // 1
} DLDataType;
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: dense, the last dimension innermost
  uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;
#endif

#ifdef __cplusplus
extern "C" {
#endif

/// The version of this header. A table only grows at its end, with a new version.
#define TRIAGE_C_VERSION 3

typedef struct TriageRuntime TriageRuntime;
typedef struct TriagePolicy TriagePolicy;
typedef struct TriageWatch TriageWatch;
typedef struct TriageBundle TriageBundle;

typedef int32_t TriageStatus;
enum {
  TRIAGE_OK = 0,
  TRIAGE_ERROR_ARGUMENT =
      1,                    ///< this interface was misused: null, a freed handle, a wrong size, no valid DLPack tensor
  TRIAGE_ERROR_INPUT = 2,   ///< the call does not fit the policy: number, names or types of inputs, params
  TRIAGE_ERROR_POLICY = 3,  ///< the policy's own code failed
  TRIAGE_ERROR_GRAPH_BREAK = 4,  ///< a policy that must be one graph is not
  TRIAGE_ERROR_LIMIT = 5,        ///< a budget or the timeout ran out
  TRIAGE_ERROR_LOAD = 6,         ///< a script could not be loaded
  TRIAGE_ERROR_FILE = 7,         ///< a file could not be read or written
  TRIAGE_ERROR_CONFIG = 8,       ///< a value of the configuration is out of range
  TRIAGE_ERROR_MEMORY = 9,       ///< no memory
  TRIAGE_ERROR_OTHER = 10        ///< another error, such as one of LibTorch
};

/// A failed call of this thread. Valid until the thread's next failed call.
typedef struct TriageError {
  TriageStatus status;    ///< TRIAGE_OK: no call of this thread has failed; all texts are then empty
  int32_t line;           ///< of the script; 0: none
  const char* message;    ///< what was done, what was expected, what came, what to do
  const char* file;       ///< of the script; empty: none
  const char* traceback;  ///< of the script, several lines; empty: none
} TriageError;

enum { TRIAGE_LOG_DEBUG = 0, TRIAGE_LOG_INFO = 1, TRIAGE_LOG_WARN = 2, TRIAGE_LOG_ERROR = 3 };

/// A part of a log record for programs: `policy`, `version`, `path` or `error`.
typedef struct TriageLogField {
  const char* name;
  const char* value;
} TriageLogField;

/// Valid while the callback runs.
typedef struct TriageLogRecord {
  int32_t level;     ///< TRIAGE_LOG_...
  const char* text;  ///< one line
  const TriageLogField* fields;
  size_t field_count;
} TriageLogRecord;

/// Any thread may call it, also several at once.
typedef void (*TriageLog)(const TriageLogRecord* record, void* user);

/// What a call does when the policy itself fails.
enum {
  TRIAGE_ON_ERROR_DEFAULT = 0,       ///< as the policy says, else the runtime, else as RAISE
  TRIAGE_ON_ERROR_RAISE = 1,         ///< the call fails
  TRIAGE_ON_ERROR_PASS_THROUGH = 2,  ///< an output named as an input is that input; flags have UNKNOWN everywhere
  TRIAGE_ON_ERROR_LAST_GOOD = 3      ///< the latest earlier version that has run answers
};

/// Gone: triage compiles nothing for the CPU. Only OFF is taken.
enum { TRIAGE_COMPILER_OFF = 0, TRIAGE_COMPILER_BACKGROUND = 1, TRIAGE_COMPILER_WAIT = 2 };

/// What happens where values of rows that a policy masks may reach gradients: the log says it, or the load, reload or
/// call fails.
enum { TRIAGE_MASKED_ROWS_WARN = 0, TRIAGE_MASKED_ROWS_REQUIRE = 1 };

/// What a reload does with a new version that works, but is much slower than the live one or breaks its graphs.
enum {
  TRIAGE_RELOAD_GATE_DEFAULT = 0,
  TRIAGE_RELOAD_GATE_WARN = 1,    ///< it goes live, and the log says what was found
  TRIAGE_RELOAD_GATE_REFUSE = 2,  ///< the live version stays live
  TRIAGE_RELOAD_GATE_SHADOW = 3   ///< the live version stays live, and the new one runs in its shadow
};

/// The decision log: a line of JSON for each call with flagged samples or a failure, and for what happens to policies
/// (docs/decisions.md). A thread of its own writes it; `run` does not wait for it, but for `at_once`. Its runtime and
/// the policies of that keep it: `on_line` may be called until the last of them is freed. That the file or `on_line`
/// fails is told to the log of the runtime.
typedef struct TriageDecisionLogOptions {
  size_t size;
  const char* file;  ///< lines are appended to it. Null: none; then there must be `on_line`
  /// Gets each line, of `length` bytes, on the thread of the log. flush_decisions returns at once there.
  void (*on_line)(const char* line, size_t length, void* user);
  void* user;
  int64_t max_file_bytes;   ///< beyond which the file is renamed, and a new one begun. 0: 64 MiB
  int64_t max_files;        ///< of the renamed ones that are kept. 0: 5
  double clean_share;       ///< 0 to 1: the share of other calls that get a line, too
  int64_t queue_records;    ///< decisions that may wait; further ones are dropped. 0: 1024
  int64_t max_samples;      ///< bad samples that a line lists. 0: 100
  int32_t at_once;          ///< 1: a call returns when its line is written
  int32_t skip_events;      ///< 1: what happens to policies gets no lines
  const char* const* drop;  ///< names of fields that are left out
  size_t drop_count;
  const char* const* mask;  ///< names of fields of text that are replaced by a hash
  size_t mask_count;
  const char* mask_key;     ///< the key of these hashes. Null: none, so that short texts can be guessed
  const char* capsule_dir;  ///< a folder for capsules of flagged and of failed calls (docs/replay.md). Null: none
} TriageDecisionLogOptions;

/// 0 and null are the defaults. Of the signed numbers, -1 means "none" or "unlimited".
typedef struct TriageRuntimeOptions {
  size_t size;
  TriageLog log;  ///< of this runtime; called while it, one of its policies or a watch lives. Null: that of set_log
  void* log_user;
  void (*print)(const char* text, void* user);  ///< the target of `print` in scripts. Null: standard output
  void* print_user;
  const char* cache_dir;        ///< keeps the last good bytes of policies for a restart. Null: nothing is written
  const char* backend;          ///< null: "fused"
  const char* const* kernels;   ///< gone: null
  size_t kernel_count;          ///< gone: 0
  int32_t compiler;             ///< gone: 0
  int32_t on_error;             ///< TRIAGE_ON_ERROR_...
  int32_t trusted;              ///< 1: scripts may call every operator, and so can crash the process
  int32_t fullgraph;            ///< 1: every policy must be one graph
  int32_t skip_flag_counts;     ///< 1: statistics do not count samples with errors
  int32_t reserved;             ///< 0
  int64_t keep_versions;        ///< that stay ready for rollback. 0: 8
  int64_t trial_calls;          ///< of a reloaded version, before it is trusted. 0: 100, -1: none
  int64_t failures_to_revert;   ///< in a row, after the trial. 0: 3, -1: never
  int64_t state_keys;           ///< for which a policy keeps state. 0: 10000
  int64_t state_age_seconds;    ///< after which an unused key starts anew. 0: never
  int64_t max_instructions;     ///< of a script, at load and at each run. 0: 50 million, -1: unlimited
  double max_seconds;           ///< likewise. 0: 5, -1, infinity, or more than 1e8: unlimited
  int64_t max_script_bytes;     ///< memory of the interpreter. 0: 64 MiB, -1: unlimited
  int64_t max_tensor_bytes;     ///< of live tensors that a script made. 0: 4 GiB, -1: unlimited
  int32_t masked_rows;          ///< TRIAGE_MASKED_ROWS_...
  int32_t reserved_2;           ///< not read
  double trial_seconds;         ///< that a trial lasts at least. 0: 10, -1: its calls alone end it
  double reload_latency_ratio;  ///< to the live version, beyond which a new one is too slow. 0: 10, -1: none
  int32_t on_slow_reload;       ///< TRIAGE_RELOAD_GATE_... 0: REFUSE
  int32_t on_new_graph_breaks;  ///< TRIAGE_RELOAD_GATE_... 0: WARN
  const TriageDecisionLogOptions* decisions;  ///< null: no decision log
} TriageRuntimeOptions;

enum {
  TRIAGE_PARAM_NUMBER = 0,    ///< `number`
  TRIAGE_PARAM_INTEGER = 1,   ///< `integer`
  TRIAGE_PARAM_BOOL = 2,      ///< `integer`: 0 or 1
  TRIAGE_PARAM_NUMBERS = 3,   ///< `numbers`, `count` of them; copied
  TRIAGE_PARAM_INTEGERS = 4,  ///< `integers`, `count` of them; copied
  TRIAGE_PARAM_TENSOR = 5     ///< `tensor`, as an input of `run`: set_param copies it if it has no deleter
};

/// A value for a param of a policy.
typedef struct TriageParam {
  const char* name;
  int32_t kind;  ///< TRIAGE_PARAM_...
  int64_t integer;
  double number;
  const int64_t* integers;
  const double* numbers;
  size_t count;
  DLManagedTensor* tensor;
} TriageParam;

/// What answered a call (TriageRunInfo::answered), and how (TriageRunInfo::form).
enum {
  TRIAGE_ANSWERED_LIVE = 0,
  TRIAGE_ANSWERED_CANARY = 1,
  TRIAGE_ANSWERED_PREVIOUS = 2,  ///< the version before, because the live one failed
  TRIAGE_ANSWERED_LAST_GOOD = 3,
  TRIAGE_ANSWERED_PASSED_THROUGH = 4,
  TRIAGE_ANSWERED_FAILED = 5  ///< nothing: the call failed
};
enum {
  TRIAGE_FORM_NONE = 0,
  TRIAGE_FORM_GRAPH = 1,     ///< a captured graph, without the script
  TRIAGE_FORM_SEGMENTS = 2,  ///< the graphs between graph breaks
  TRIAGE_FORM_SCRIPT = 3,    ///< the script, operator by operator
  TRIAGE_FORM_CAPTURE = 4    ///< the script, while a graph was captured
};

/// How one call was answered. A call that reaches the policy fills it, also when it fails.
typedef struct TriageRunInfo {
  size_t size;
  int32_t version;   ///< that answered; the live one if none did
  int32_t answered;  ///< TRIAGE_ANSWERED_...
  int32_t form;      ///< TRIAGE_FORM_...
  int32_t reserved;
  char hash[24];  ///< of that version: 16 hexadecimal digits
  int64_t time_ns;
  int64_t flagged;      ///< samples with an error. -1: not counted
  int64_t repaired;     ///< flagged samples that an output differs for from its input. -1: not counted
  const char* failure;  ///< of the live version; empty: it answered. Valid until this thread's next run with an info
} TriageRunInfo;

typedef struct TriageRunOptions {
  size_t size;
  const TriageParam* params;  ///< for this call; other params keep their values
  size_t param_count;
  const size_t* donate;  ///< numbers of inputs whose memory outputs may take over; their content is lost
  size_t donate_count;
  int64_t timeout_ns;   ///< after which the call fails with TRIAGE_ERROR_LIMIT. 0, INT64_MAX: never
  int32_t on_error;     ///< TRIAGE_ON_ERROR_...
  int32_t reserved;     ///< 0
  void* stream;         ///< of inputs on a CUDA device: their cudaStream_t (see run). Null: the default stream
  TriageRunInfo* info;  ///< null: nothing is reported
  const char*
      decision_id;  ///< the host's name of this call, of its trace, and of each sample, for the decision log and for
  const char* trace_id;           ///< candidates; each may be null
  const char* const* sample_ids;  ///< one for each row of the first input
  size_t sample_id_count;
  const char* state_key;  ///< which state a policy with state uses. Null: ""
} TriageRunOptions;

/// A tensor by name.
typedef struct TriageNamedTensor {
  const char* name;
  DLManagedTensor* tensor;
} TriageNamedTensor;

/// One error of one sample, or how often it came (flag_counts).
typedef struct TriageFlag {
  int64_t sample;    ///< its row; in flag_counts -1
  int64_t count;     ///< 1; in flag_counts the number of samples
  int32_t location;  ///< 0..1023; if the record of the sample overflowed, the number of errors that it lost
  int32_t code;      ///< 1 NaN, 2 Inf, ...: docs/cpp-reference.md, `Code`
  int32_t severity;  ///< 1 warn, 2 error, 3 critical
  int32_t reserved;
  const char* location_name;  ///< these three are valid until the process ends
  const char* code_name;      ///< "NAN"
  const char* severity_name;  ///< "CRITICAL"
} TriageFlag;

/// A version of a policy. Its texts are valid until this thread's next call of `version` or `versions`.
typedef struct TriageVersion {
  size_t size;
  int32_t number;                                         ///< 1, 2, ... in the order of loading
  int32_t live, pinned, on_trial, taken_back, candidate;  ///< 0 or 1
  char hash[24];           ///< of the source and the files that it read: 16 hexadecimal digits
  int64_t since_ns;        ///< when it went live (last), since 1970
  uint64_t failures;       ///< calls that it failed
  const char* path;        ///< of the policy, as given to load_file or load_source
  const char* last_error;  ///< of the live version: why the newest file is not it. Empty: it is
  const char* last_error_file;
  int64_t last_error_line;
} TriageVersion;

/// What `reload`, `replace` and `unpin` did.
enum {
  TRIAGE_RELOAD_UNCHANGED = 0,
  TRIAGE_RELOAD_SWAPPED = 1,  ///< a new version is live
  TRIAGE_RELOAD_REFUSED = 2   ///< the old one stays live; TriageVersion::last_error says why
};

/// Counts since the policy was loaded.
typedef struct TriageStatistics {
  size_t size;
  uint64_t calls;
  uint64_t live, canary, previous, last_good, passed_through, failed;  ///< calls by TRIAGE_ANSWERED_...
  uint64_t graph, segments, script, capture;                           ///< calls by TRIAGE_FORM_...
  /// Failures by their reason, whether or not another version answered.
  uint64_t policy_failures, limit_failures, graph_break_failures, input_failures, other_failures;
  uint64_t samples, flagged, repaired;  ///< of outputs of flags on the CPU
  uint64_t uncounted;                   ///< calls whose flags lie on another device
  uint64_t recompiles, graph_breaks;
  uint64_t reloads, refused,
      reverted;                     ///< versions that went live, sources that did not, versions that were taken back
  uint64_t time_ns;                 ///< of all calls
  uint64_t p50_ns, p90_ns, p99_ns;  ///< upper bounds of the latency of that share of the calls
} TriageStatistics;

enum {
  TRIAGE_WATCH_RELOADED = 0,           ///< a policy has a new live version
  TRIAGE_WATCH_REFUSED = 1,            ///< the new file did not go live; the old version stays
  TRIAGE_WATCH_REVERTED = 2,           ///< the live version failed; the previous one is live again
  TRIAGE_WATCH_DELETED = 3,            ///< the file is gone; its last version stays live
  TRIAGE_WATCH_RESTORED = 4,           ///< after DELETED or REFUSED: the file has its old content again
  TRIAGE_WATCH_ADDED = 5,              ///< a file without a policy; the host decides whether to load it
  TRIAGE_WATCH_LOST = 6,               ///< the folder itself is gone; the watch keeps looking for it
  TRIAGE_WATCH_FOUND = 7,              ///< it is there again
  TRIAGE_WATCH_PROMOTED = 8,           ///< a candidate went live
  TRIAGE_WATCH_CANDIDATE_REVERTED = 9  ///< a canary was taken back
};

/// An event in a watched folder. Valid while the callback runs.
typedef struct TriageWatchEvent {
  int32_t kind;      ///< TRIAGE_WATCH_...
  int32_t version;   ///< the live one; 0: none
  const char* name;  ///< of the kind: "reloaded"
  const char* path;
  const char* message;  ///< may be empty
  const char* file;     ///< of a refusal: the script, and the line; may be empty, and 0
  int64_t line;
} TriageWatchEvent;

typedef struct TriageWatchOptions {
  size_t size;
  int64_t debounce_ms;  ///< reload when the folder was quiet for this long. 0: 50
  int64_t poll_ms;  ///< 0: the kernel reports changes. Otherwise poll at this interval, as network file systems need
  void (*on_event)(const TriageWatchEvent* event, void* user);  ///< on the watching thread; may not call rescan
  void* user;
} TriageWatchOptions;

/// --- candidates: a new version beside the live one, before it goes live (docs/rollouts.md) ---

enum {
  TRIAGE_CANDIDATE_SHADOW = 0,  ///< runs on a share of the batches after they were answered; it answers no call
  TRIAGE_CANDIDATE_CANARY = 1   ///< answers a share of the calls
};
enum {
  TRIAGE_CANDIDATE_RUNNING = 0,
  TRIAGE_CANDIDATE_PROMOTED = 1,  ///< it went live
  TRIAGE_CANDIDATE_REVERTED = 2,  ///< a rule of TriageCanaryOptions was broken
  TRIAGE_CANDIDATE_ENDED = 3      ///< the host ended it, or the runtime is gone
};

/// Calls of one side since the comparison began. Times are upper bounds; 0: there were no such calls.
typedef struct TriageCandidateSide {
  uint64_t calls;
  uint64_t failures;  ///< of the candidate: that the live version answered
  uint64_t samples, flagged;
  uint64_t p50_ns, p90_ns, p99_ns;
} TriageCandidateSide;

/// Its texts are valid until this thread's next call of `candidate` or `end_candidate`; in on_end while that runs.
typedef struct TriageCandidateReport {
  size_t size;
  int32_t kind, state;   ///< TRIAGE_CANDIDATE_...
  int32_t version;       ///< of the candidate. 0: there was none, and all else is 0 and empty
  int32_t live_version;  ///< that it is compared with
  double share;          ///< of the calls
  uint64_t restarts;     ///< of the comparison, because another version went live
  TriageCandidateSide live, candidate;
  /// Of a shadow: calls that were compared, that the candidate failed or answered in another form, that its queue had
  /// no room for, and that nothing can be said of.
  uint64_t compared, failed, dropped, not_comparable;
  uint64_t only_live, only_candidate;       ///< samples that one of the two flags
  uint64_t different, different_unflagged;  ///< samples whose outputs differ; of these, those that neither flags
  double max_difference;
  const char* reason;        ///< why it was promoted, reverted or ended; empty while it runs
  const char* last_failure;  ///< of the candidate; may be empty
  const char* text;          ///< the whole report, several lines
  const char* json;          ///< the same as one object, on one line
} TriageCandidateReport;

typedef struct TriageShadowOptions {
  size_t size;
  double share;         ///< of the calls, at most 1. 0: 0.1
  int64_t queue;        ///< calls that wait for the candidate. 0: 64
  int64_t queue_bytes;  ///< memory of their tensors. 0: 256 MiB, -1: unlimited
  double tolerance;     ///< absolute differences up to this are none
  int64_t examples;     ///< samples that the report lists. 0: 10, -1: none
} TriageShadowOptions;

typedef struct TriageCanaryOptions {
  size_t size;
  double share;           ///< of the calls, at most 1. 0: 0.05
  int64_t promote_after;  ///< calls that it answers before it goes live. 0: 10000, -1: only `promote` does it
  int64_t failures;       ///< calls that it fails before it is reverted. 0: 1, -1: any number
  double flagged_ratio;   ///< the highest share of flagged samples, to that of the live version. 0: 2, -1: any
  double p99_ratio;       ///< the highest 99th percentile of the time, to that of the live version. 0: 1.5, -1: any
  int64_t min_calls;      ///< of both sides before the times are compared. 0: 500
  int64_t min_samples;    ///< of both sides before the flagged samples are compared. 0: 1000
  /// Called once when it is promoted, reverted or ended, on a thread of the runtime, but not after free_runtime.
  void (*on_end)(const TriageCandidateReport* report, void* user);
  void* user;
} TriageCanaryOptions;

/// --- bundles: policies that change together (docs/bundles.md) ---

/// A version of a bundle. Its texts and arrays are valid until this thread's next call of `bundle_version` or
/// `bundle_versions`.
typedef struct TriageBundleVersion {
  size_t size;
  int32_t number;                              ///< 1, 2, ... in the order of going live
  int32_t live, pinned, on_trial, taken_back;  ///< 0 or 1
  int32_t reserved;
  int64_t since_ns;                 ///< when it went live (last), since 1970
  const char* version;              ///< as its bundle.json says
  const char* sha256;               ///< of its bundle.json, 64 hexadecimal digits
  size_t policy_count;              ///< its policies, in the order of their names,
  const char* const* policy_names;  ///< and the number of the version of each
  const int32_t* policy_versions;
  const char* last_error;  ///< of the live version: why the newest bundle.json is not it. Empty: it is
  const char* last_error_file;
  int64_t last_error_line;
} TriageBundleVersion;

/// --- what policies get of the host ---

/// One call of a function of the host by a policy.
typedef struct TriageFunctionCall {
  size_t size;                     ///< of this struct in the library
  DLManagedTensor* const* inputs;  ///< valid while the function runs; it must not write to them, and frees none
  size_t input_count;
  DLManagedTensor** outputs;  ///< room for `output_room` tensors, all null
  size_t output_room;         ///< 16
  size_t output_count;        ///< to be set: the number of outputs. 0 at first
  /// To be set if the function fails: why. The call of the policy fails with it, and with the line of the script. The
  /// library reads it as soon as the function has returned.
  const char* error;
  void* stream;  ///< of inputs on a CUDA device: the stream of the run. Null: the default stream
} TriageFunctionCall;

/// It may be called on every thread that runs policies, on several at once. Inputs have strides, which may be any. The
/// library takes over an output with a deleter, also where `error` is set, and copies one without a deleter before the
/// function is called again on this thread. An output has memory of its own: neither it nor its data is one of
/// `inputs`.
typedef void (*TriageFunction)(TriageFunctionCall* call, void* user);

typedef struct TriageFunctionOptions {
  size_t size;
  /// 1: equal inputs give equal outputs, and the function does nothing else. A call of it is then a node of the
  /// policy's graph, and no graph break. Equal calls may become one, unused ones may not run, and a reload may try a
  /// new version by calling it with synthetic values.
  int32_t pure;
  int32_t reserved;  ///< not read
  /// Of a pure function: which outputs it returns for such inputs. It is called as the function is, in each call that
  /// calls the function, and with made-up sizes; the inputs have no data (null), and of the outputs, which need none,
  /// only dtype and shape are read. It must be right for all shapes, or fail. Null: there is one output, of the dtype
  /// and shape of the first input.
  TriageFunction shapes;
  /// If the function was defined: called with `user`, once, when no policy can call it any more. Null: nothing is.
  void (*free_user)(void* user);
} TriageFunctionOptions;

typedef struct TriageModuleOptions {
  size_t size;
  DLDevice device;   ///< that its parameters are moved to. Type 0: they stay where the file has them
  int32_t training;  ///< 1: the module is in training mode; 0: in evaluation mode
  int32_t reserved;  ///< not read
} TriageModuleOptions;

/// The functions of all versions.
typedef struct TriageApi {
  uint32_t interface_version;  ///< of the library: at least the version that was asked for

  /// --- the process ---
  const char* (*library_version)(void);             ///< of triage: "0.1.0"
  const char* (*torch_version)(void);               ///< of the LibTorch that it runs on: "1.13"
  const TriageError* (*last_error)(void);           ///< of this thread; never null
  const char* (*status_name)(TriageStatus status);  ///< "TRIAGE_ERROR_INPUT"; "unknown status" for another number
  /// The log for all runtimes without one of their own. Null: standard error, from level info on. `user` must live
  /// until another set_log has returned.
  TriageStatus (*set_log)(TriageLog log, void* user);
  void (*free_text)(char* text);                 ///< what metrics_text gave; null is allowed
  void (*free_tensor)(DLManagedTensor* tensor);  ///< calls its deleter; null is allowed

  /// --- runtimes --- Options may be null. A policy and a watch may outlive their runtime.
  TriageStatus (*create_runtime)(const TriageRuntimeOptions* options, TriageRuntime** runtime);
  TriageStatus (*free_runtime)(TriageRuntime* runtime);  ///< waits for unused versions, not in a callback; null: no-op
  /// Loads a policy from a file (its extension selects the front end), or from `length` bytes; messages show `name`,
  /// which may be null. Two loads of one file give two policies.
  TriageStatus (*load_file)(TriageRuntime* runtime, const char* path, TriagePolicy** policy);
  TriageStatus (*load_source)(TriageRuntime* runtime, const char* source, size_t length, const char* name,
                              TriagePolicy** policy);
  TriageStatus (*free_policy)(TriagePolicy* policy);  ///< null is allowed
  /// Policies from files directly in `folder` follow them until free_watch. Options may be null.
  TriageStatus (*watch)(TriageRuntime* runtime, const char* folder, const TriageWatchOptions* options,
                        TriageWatch** watch);
  TriageStatus (*rescan)(TriageWatch* watch);  ///< checks the folder now
  /// Waits for a reload in progress, but not in a callback. Null is allowed.
  TriageStatus (*free_watch)(TriageWatch* watch);
  /// Statistics of all policies in Prometheus' text format; free it with free_text.
  TriageStatus (*metrics_text)(TriageRuntime* runtime, char** text);

  /// --- calls ---
  /// Runs the live version on one batch. Inputs may have any strides but negative ones, and null for dense.
  /// An input with a deleter belongs to the call, whatever it returns: the deleter is called once, on any thread, when
  /// nothing uses the memory any more. That may be after the call: for an output that is this very input, or a script
  /// that keeps it, if only until its next garbage collection; free_policy ends that. An input without one stays the
  /// host's. Its memory is not used when the call has returned: what keeps it gets a copy. Only where scripts keep
  /// inputs in variables, and several threads call, give inputs a deleter: another call may be reading the memory just
  /// then. `outputs` has room for `*output_count` tensors; the call sets `*output_count` to their number, also if the
  /// room was too small, and the rest of `outputs` to null. The host frees each output by its deleter, on any thread.
  /// Outputs are not copied: strides may be other than dense. On a CUDA device, the call enqueues its work on
  /// options->stream: inputs must be ready there, outputs are ready there when the host has synchronized, and must be
  /// used on it or freed after that. "When the call has returned" then means: behind it on the stream. Options may be
  /// null.
  TriageStatus (*run)(TriagePolicy* policy, DLManagedTensor* const* inputs, size_t input_count,
                      const TriageRunOptions* options, DLManagedTensor** outputs, size_t* output_count);
  /// The same by name. The host sets the names in `outputs`, the call their tensors; it drops outputs that are not
  /// named.
  TriageStatus (*run_named)(TriagePolicy* policy, const TriageNamedTensor* inputs, size_t input_count,
                            const TriageRunOptions* options, TriageNamedTensor* outputs, size_t output_count);
  /// Captures and compiles for such inputs, so that the first call is warm. Takes the inputs over as `run` does.
  TriageStatus (*prepare)(TriagePolicy* policy, DLManagedTensor* const* inputs, size_t input_count,
                          const TriageRunOptions* options);
  /// For all later calls, also after reloads.
  TriageStatus (*set_param)(TriagePolicy* policy, const TriageParam* param);
  TriageStatus (*manual_seed)(TriagePolicy* policy, uint64_t seed);
  /// The errors in an output of flags, samples in order. The tensor stays the host's. `*count` is the room in `flags`
  /// (null if it is 0), and becomes the number of errors; those beyond the room are left out.
  TriageStatus (*read_flags)(const DLManagedTensor* tensor, TriageFlag* flags, size_t* count);

  /// --- versions --- `result` gets TRIAGE_RELOAD_..., and may be null.
  TriageStatus (*version)(TriagePolicy* policy, TriageVersion* version);  ///< the live one
  /// Those kept, oldest first. Set `size` of the first. `*count` as in read_flags.
  TriageStatus (*versions)(TriagePolicy* policy, TriageVersion* versions, size_t* count);
  TriageStatus (*reload)(TriagePolicy* policy, int32_t* result);  ///< checks the file now
  TriageStatus (*replace)(TriagePolicy* policy, const char* source, size_t length, int32_t* result);
  TriageStatus (*rollback)(TriagePolicy* policy,
                           int32_t number);  ///< the policy follows its file again from its next change
  TriageStatus (*pin)(TriagePolicy* policy, int32_t number);     ///< whatever happens to the file
  TriageStatus (*unpin)(TriagePolicy* policy, int32_t* result);  ///< and loads the current file

  /// --- what happened ---
  TriageStatus (*statistics)(TriagePolicy* policy, TriageStatistics* statistics);
  /// Samples by location, code and severity. `*count` as in read_flags.
  TriageStatus (*flag_counts)(TriagePolicy* policy, TriageFlag* flags, size_t* count);

  /// --- state between calls ---
  TriageStatus (*save_state)(TriagePolicy* policy, const char* file);
  TriageStatus (*load_state)(TriagePolicy* policy, const char* file);
  TriageStatus (*reset_state)(TriagePolicy* policy, const char* key);  ///< null: of all keys

  /// --- since version 2 ---
  /// read_flags of an output of this policy: its own names of codes 4, 8 and 12 (`codes = { MISSING = 4 }`), as the
  /// live version has them.
  TriageStatus (*read_policy_flags)(TriagePolicy* policy, const DLManagedTensor* tensor, TriageFlag* flags,
                                    size_t* count);

  /// --- since version 3: candidates --- Each of the first four loads and tries a source as a reload does, and starts
  /// it beside the live version. Options may be null. `number` gets the number of its version, and may be null. A
  /// policy has at most one candidate at a time.
  TriageStatus (*shadow)(TriagePolicy* policy, const char* path, const TriageShadowOptions* options, int32_t* number);
  TriageStatus (*shadow_source)(TriagePolicy* policy, const char* source, size_t length,
                                const TriageShadowOptions* options, int32_t* number);
  TriageStatus (*canary)(TriagePolicy* policy, const char* path, const TriageCanaryOptions* options, int32_t* number);
  TriageStatus (*canary_source)(TriagePolicy* policy, const char* source, size_t length,
                                const TriageCanaryOptions* options, int32_t* number);
  TriageStatus (*candidate)(TriagePolicy* policy, TriageCandidateReport* report);  ///< also of one that has ended
  TriageStatus (*promote)(TriagePolicy* policy);                                   ///< makes it live, as a reload does
  TriageStatus (*end_candidate)(TriagePolicy* policy, TriageCandidateReport* report);  ///< `report` may be null

  /// --- since version 3: bundles --- Their policies change only with them: `reload`, `replace`, `rollback`, `pin`,
  /// `unpin`, `canary` and `promote` of such a policy are errors. `watch` of the folder follows its bundle.json.
  TriageStatus (*load_bundle)(TriageRuntime* runtime, const char* folder, TriageBundle** bundle);
  TriageStatus (*free_bundle)(TriageBundle* bundle);  ///< null is allowed; the policies that the host holds stay
  /// The policy of file `name`, without the extension: a handle of its own, for free_policy.
  TriageStatus (*bundle_policy)(TriageBundle* bundle, const char* name, TriagePolicy** policy);
  TriageStatus (*bundle_version)(TriageBundle* bundle, TriageBundleVersion* version);  ///< the live one
  /// Those kept, oldest first, as `versions` gives them.
  TriageStatus (*bundle_versions)(TriageBundle* bundle, TriageBundleVersion* versions, size_t* count);
  TriageStatus (*reload_bundle)(TriageBundle* bundle, int32_t* result);  ///< these four as those of a policy
  TriageStatus (*rollback_bundle)(TriageBundle* bundle, int32_t number);
  TriageStatus (*pin_bundle)(TriageBundle* bundle, int32_t number);
  TriageStatus (*unpin_bundle)(TriageBundle* bundle, int32_t* result);

  /// --- since version 3: what policies get of the host --- Policies that are loaded later have it as a global. What is
  /// defined under one name last holds. The name of a global that scripts have (torch, print) makes all later loads
  /// fail.
  TriageStatus (*define_function)(TriageRuntime* runtime, const char* name, TriageFunction function, void* user,
                                  const TriageFunctionOptions* options);
  /// The tensor is not copied: the host may write new values to it between calls, and the next call reads them. The
  /// library takes over a tensor with a deleter, also where this fails. Without a deleter its memory must live as long
  /// as the runtime and all its policies.
  TriageStatus (*define_tensor)(TriageRuntime* runtime, const char* name, DLManagedTensor* tensor);
  /// A TorchScript module from a file, as a function: its `forward`. The file is code that runs in this process,
  /// without any limit: load only files that you trust. Options may be null.
  TriageStatus (*define_module)(TriageRuntime* runtime, const char* name, const char* path,
                                const TriageModuleOptions* options);

  /// --- since version 3: the decision log --- Returns when all decisions so far are written, or counted as failed.
  /// TRIAGE_ERROR_ARGUMENT if the runtime has no decision log. (free_runtime writes what waits, where no policy is
  /// left.)
  TriageStatus (*flush_decisions)(TriageRuntime* runtime);
} TriageApi;

/// The table, or null if the library is older than `version`, or `version` is 0. It lives until the process ends.
__attribute__((visibility("default"))) const TriageApi* triage_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif
#endif
