#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <triage/api.h>
#include <triage/cache_statistics.h>
#include <triage/candidate.h>
#include <triage/compile_profiler.h>
#include <triage/compile_times.h>
#include <triage/error.h>
#include <triage/front_end.h>
#include <triage/graph.h>
#include <triage/log.h>
#include <triage/masked_rows.h>
#include <triage/params.h>
#include <triage/state.h>
#include <triage/statistics.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace torch::jit {
struct Module;
}

/// Loads policies, runs them on batches, and reloads them while the program runs.
///
///     triage::Runtime runtime;
///     triage::Policy repair = runtime.load("policies/repair.lua");
///     auto watch = runtime.watch("policies");               // follows the files while alive
///     auto [z, f] = repair.run<2>({logits});
///
/// Thread-safe: any number of threads may use everything here at once. A warm `run` takes no lock.
///
/// Functions throw triage::Error and classes derived from it (triage/error.h), and std::bad_alloc without memory;
/// nothing else.
///
/// `fork`: the threads of a Runtime (one that frees old versions, one for candidates, one for each Watch) do not exist
/// in a forked child. A prefork server must create its Runtime in the child, or fork before it creates one. The child
/// may destroy what it inherited: that waits for no thread, and the memory stays until the child ends.
namespace triage {

class Bundle;
class DecisionLog;
class Policy;
class Watch;

namespace policy {
class RuntimeCore;
class PolicyCore;
class WatchCore;
}  // namespace policy

/// What a reload does with a new version that passed its tests, but that a gate stops.
enum class ReloadGate : uint8_t {
  warn,    ///< it goes live, and the log says what was found
  refuse,  ///< the live version stays live
  /// The live version stays live, and the new one runs in its shadow (Policy::candidate, with the defaults of
  /// ShadowOptions) until the host promotes or ends it, or a reload brings another version. Where the host has started
  /// a candidate, that goes on, and this is `refuse`.
  shadow,
};
TRIAGE_API const char* to_string(ReloadGate gate) noexcept;

struct RuntimeOptions {
  /// For policies that do not say themselves, and calls that do not.
  OnError on_error = OnError::raise;
  /// The log for records of loads, reloads and failures. Default: the log of the process (set_log), initially standard
  /// error. Called only while the Runtime, one of its policies or a Watch lives.
  Log log = {};
  /// Folder for the last good bytes of each policy file, so that a restart with a broken file still finds a policy, and
  /// for what `pin` and `rollback` made live, or stayed live when a source was refused or taken back, so that it holds
  /// over a restart. Empty: nothing is written.
  std::filesystem::path cache_dir = {};
  /// Budgets of every script, at load and at every run of its function.
  Limits limits = {};
  /// Trusted scripts may call every operator of LibTorch with any arguments, and so can crash the process. Others may
  /// call those of docs/operators.md. (Both read files of their folder only.)
  bool trusted = false;
  /// The backend for captured graphs (triage::list_backends()).
  std::string backend = "fused";
  /// Every policy must be one graph, whether or not its script says so; a graph break is an error.
  bool fullgraph = false;
  /// Whether a policy is refused whose masked rows may reach gradients, whether or not its script asks for that.
  MaskedRows masked_rows = MaskedRows::warn;
  /// The number of versions of a policy that stay ready for rollback, including the live one.
  size_t keep_versions = 8;
  /// The number of calls for which a reloaded version is on trial. If it fails a call, exceeds its share of the
  /// deadline, or returns another number, type or shape of outputs than the previous version would, the previous
  /// version answers that call and is live again. The trial also waits for a call of each kind of inputs that triage
  /// could not try before the version went live, for at most 100 times as many calls. 0: no trial.
  size_t trial_calls = 100;
  /// The trial also lasts at least this long from its first call, because calls may follow one another quickly; 0: the
  /// calls alone end it. Infinite, or more than 1e8: it never ends.
  double trial_seconds = 10;
  /// After the trial: when a version fails this many calls in a row, the previous version answers the last of them and
  /// is live again. 0: never.
  size_t failures_to_revert = 3;
  /// The gate for slow versions: a reload times the new version and the live one on synthetic inputs of each kind that
  /// calls came with. It stops a version that takes more than 1 ms for a call, and more than this many times as long as
  /// the live one. At least 1; 0: nothing is timed.
  double reload_latency_ratio = 10;
  ReloadGate on_slow_reload = ReloadGate::refuse;
  /// The gate for graph breaks: for a new version that has some for such inputs, where the live one has none.
  ReloadGate on_new_graph_breaks = ReloadGate::warn;
  /// The number of keys (RunOptions::state_key) for which a policy keeps state; at least 1. Beyond it, the key that was
  /// not used for the longest time starts anew, unless a call runs with it.
  size_t state_keys = 10'000;
  /// A key that no call has used for this time starts anew. 0: never.
  std::chrono::seconds state_age{0};
  /// Seed of the random numbers of policies (`torch.randn`, `math.random`, ...). Each policy has its own generators,
  /// one per device, with this seed, and never draws from LibTorch's default generators, which belong to the host. (The
  /// default is that of torch.Generator.)
  uint64_t seed = 67280421310721;
  /// Whether Policy::statistics and RunInfo count samples with errors. triage reads the flags that a call returns, if
  /// they lie on the CPU, and compares the flagged samples with their inputs.
  bool count_flags = true;
  /// Writes a line for each call with flagged samples (triage/decisions.h). Null: none.
  std::shared_ptr<DecisionLog> decisions = {};
  /// Counts the graph breaks and recompiles of all policies. Null: nothing is counted.
  std::shared_ptr<CompileProfiler> profiler = {};
  /// The target of `print` in scripts. Default: standard output.
  std::function<void(const std::string&)> print = {};
  /// Sees the bytes of every file before anything in it is read or run: policies, what they read while they are loaded
  /// (modules and tables), of a bundle first bundle.json and then every file that it lists, and what `cache_dir` holds
  /// of a policy file (under the path of that file, though the file may hold other bytes now). `path` is absolute. What
  /// it throws refuses the file: a load throws FileError with its message, and a reload keeps the live version. Called
  /// on the thread that loads, so at times on several at once; it must not call the policy that is loaded.
  std::function<void(const std::filesystem::path& path, std::string_view bytes)> verify = {};
};

struct RunOptions {
  /// Indices of donated inputs: outputs may take over their memory (backend `fused`, if one loop is the whole graph,
  /// and the input is dense, does not require grad, and shares memory with no other input). The content of such an
  /// input after the call is unspecified.
  std::vector<size_t> donate = {};
  /// Values for this call. Throws InputError as set_param does; the elements of a tensor are checked if it lies on the
  /// CPU and has at most 1,024: a call waits for no GPU to check a param.
  Params params = {};
  /// After this time the call ends with LimitError (checked while script code runs and between the operators of a
  /// captured graph, not inside an operator). The clock's largest moment is no deadline.
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
  /// Overrides the policy's own `on_error` and RuntimeOptions::on_error.
  std::optional<OnError> on_error = {};
  /// Filled by the call. Null: nothing is reported.
  RunInfo* info = nullptr;
  /// The host's own names of this call, of its trace, and of each sample (one for each row of the first input, or
  /// none). They appear in the decision log; triage reads them during the call only.
  std::string_view decision_id = {};
  std::string_view trace_id = {};
  at::ArrayRef<std::string> sample_ids = {};
  /// Which state a policy with state uses: each key, such as the id of a stream or a user, has its own. Calls with the
  /// same key follow one another, in any order if several threads make them; a `deadline` also bounds the wait. triage
  /// reads it during the call only.
  std::string_view state_key = {};
};

/// Why the newest file did not go live.
struct LoadFailure {
  std::string message;
  Source source;  // file and line; the file is empty if the failure concerns no line
  std::chrono::system_clock::time_point when;
};

struct VersionInfo {
  int number = 0;                               // 1, 2, ... in the order of loading
  std::string hash;                             // of the source and the files that it read, 16 hexadecimal digits
  std::chrono::system_clock::time_point since;  // when it went live (last)
  std::string path;                             // as given to load; the name given to load_source
  bool live = false;
  bool pinned = false;
  bool on_trial = false;    // RuntimeOptions::trial_calls
  bool taken_back = false;  // it went live, failed, and the previous version replaced it
  bool candidate = false;   // it runs beside the live one (Policy::shadow, Policy::canary)
  uint64_t failures = 0;    // calls that it failed, whether or not another version answered them
  /// Set in Policy::version(): why the newest file is not this version (broken, deleted, taken back, ...). Empty
  /// otherwise.
  std::optional<LoadFailure> last_error;
};

/// Why a policy is several graphs, or runs as a script: one graph break.
struct BreakReport {
  std::string id;                 // of its kind, "TB0001": docs/graph-breaks.md lists them
  std::string what;               // a clause: "`item` reads a value of a tensor"
  std::string explanation, hint;  // sentences: why it breaks a graph, and what to do; the hint may be empty
  Source where;
  std::string user_code;  // the script's stack with its source lines, innermost last
  std::string text;       // all of it, several lines, as in the log
};

/// A graph captured for one kind of inputs.
struct CapturedGraph {
  std::shared_ptr<const graph::Graph> graph;
  std::string guards;  // the guards of this graph; one a line
};

/// Output tensors with their names, in the policy's order.
class TRIAGE_API Outputs {
 public:
  Outputs(std::vector<std::string> names, std::vector<at::Tensor> tensors);
  /// Throws InputError that lists the names.
  const at::Tensor& operator[](std::string_view name) const;
  /// Throws InputError for an index beyond their number.
  const at::Tensor& operator[](size_t index) const;
  bool contains(std::string_view name) const noexcept;
  size_t size() const noexcept { return items_.size(); }
  auto begin() const noexcept { return items_.begin(); }
  auto end() const noexcept { return items_.end(); }

 private:
  std::vector<std::pair<std::string, at::Tensor>> items_;
};

enum class Reload : uint8_t {
  unchanged,  ///< the source has not changed
  swapped,    ///< a new version is live
  refused,    ///< the old version stays live; version().last_error says why
};

/// What a tensor is without its values.
struct TensorMetadata {
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<int64_t> sizes = {};  ///< -1: depends on values
  c10::Device device = c10::kCPU;
  bool is_flags = false;  ///< of an output
};

/// One policy of a Runtime: a cheap handle; copies share the policy, and keep working after the Runtime is gone. Do not
/// destroy or assign a handle while a call through it runs: a host function that does so must call through a copy.
class TRIAGE_API Policy {
 public:
  Policy() = default;  // no policy: every call but `operator bool` throws InputError
  explicit operator bool() const noexcept { return core_ != nullptr; }

  /// Runs the live version on one batch: tensors in the order of signature().inputs, results in the order of
  /// signature().outputs. One version serves the whole call. An output shares memory with an input only if the policy
  /// returns that input untouched, or if the input was donated. Throws InputError (number of inputs, undefined tensor,
  /// unknown param, donate out of range), ValidationError (typing.h: an input that does not fit its declared type) and,
  /// by `on_error`, PolicyError, GraphBreakError, LimitError.
  std::vector<at::Tensor> run(at::ArrayRef<at::Tensor> inputs, const RunOptions& options = {}) const;

  /// The same, for a policy with N outputs: `auto [z, f] = policy.run<2>({x});`
  template <size_t N>
  std::array<at::Tensor, N> run(at::ArrayRef<at::Tensor> inputs, const RunOptions& options = {}) const {
    std::vector<at::Tensor> outputs = run(inputs, options);
    if (outputs.size() != N) throw_output_count(N, outputs.size());
    std::array<at::Tensor, N> result;
    for (size_t i = 0; i < N; ++i) result[i] = std::move(outputs[i]);
    return result;
  }

  /// By name, in any order: `policy.run_named({{"z", x}})["f"]`.
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
  Outputs run_named(const NamedTensors& inputs, const RunOptions& options = {}) const;

  /// Captures and compiles for such inputs now, by a run on them, so that the first real call is warm. State stays as
  /// it is. If `options` names donated inputs, this also prepares donated calls, but does not donate or write to these
  /// inputs. Throws as `run` does with OnError::raise.
  void prepare(at::ArrayRef<at::Tensor> inputs, const RunOptions& options = {}) const;

  /// Changes a param for all later calls, also after reloads. RunOptions::params overrides it. Throws InputError for an
  /// unknown name, and for a value that does not fit or that the policy does not allow (Param::min, ...). While a
  /// candidate runs, both versions must allow it. All elements of a tensor are checked, also on a GPU; what the host
  /// writes to it later is not. Other numbers in a list or a tensor never compile anything anew; another length, shape,
  /// dtype or device may, and so may the other value of a boolean.
  void set_param(const std::string& name, ParamValue value) const;

  /// Reseeds the policy's random numbers. A script, its graphs and every backend draw the same numbers in the same
  /// order; reloads continue the sequence. Concurrent calls draw from one sequence, in the order in which they reach
  /// it.
  void manual_seed(uint64_t seed) const;

  /// --- state between calls (docs/writing-policies.md) --- A call changes the state of its key when it is answered by
  /// the live version, or by the previous one in its place. Calls that fail, candidates, `prepare`, and answers by
  /// OnError leave it. All of this may be used while calls run; a call that runs meanwhile with a key that is set or
  /// reset here does not change it any more.
  ///
  /// A copy of the state of all keys that calls have used. A canary has state of its own (docs/rollouts.md).
  PolicyState state() const;
  /// Replaces the state of all keys by copies of `state`. Names that are missing start anew. Throws InputError for a
  /// name, dtype or shape that the live version does not declare, and for a key that comes twice.
  void set_state(const PolicyState& state) const;
  /// All keys start anew; with a key, only that one.
  void reset_state() const;
  void reset_state(std::string_view key) const;
  /// Writes the state to a `.pt` file, by atomic rename. Throws FileError.
  void save_state(const std::filesystem::path& file) const;
  /// Replaces the state of all keys by what `save_state` wrote, so that a restart continues. What the live version no
  /// longer declares, or declares with another dtype or shape, starts anew, and the log says so. The file is untrusted:
  /// throws FileError, and changes nothing, if it is no state of a policy of this name, or is damaged.
  void load_state(const std::filesystem::path& file) const;

  const std::string& name() const;
  /// The signature of the live version. `outputs` has the names `out0`, `out1`, ... if the script names none, and is
  /// empty until a run shows their number.
  Signature signature() const;

  /// Counts of all calls since the policy was loaded. A call that runs meanwhile may be counted in part.
  PolicyStatistics statistics() const;

  /// --- versions ---
  VersionInfo version() const;                // the live one, with the last error
  std::vector<VersionInfo> versions() const;  // those kept, oldest first
  /// Makes version `number` live again, at once: a reload of the file that is running is cancelled. The policy follows
  /// its file again from the next change on. Throws InputError if that version is no longer kept. With
  /// RuntimeOptions::cache_dir this holds over a restart: a later Runtime that loads the file starts with that version,
  /// unless the file has changed since.
  void rollback(int number) const;
  /// Makes version `number` live, as `rollback` does, and keeps it live, whatever happens to the file; with
  /// RuntimeOptions::cache_dir also in a later Runtime that loads the file.
  void pin(int number) const;
  /// Ends `pin`, and loads the current file.
  Reload unpin() const;
  /// Checks the file now, as a Watch does after a change. It tries a refused source again.
  Reload reload() const;
  /// Replaces the live version with `source`, with all checks of a reload (for policies that are not in files).
  Reload replace(std::string_view source) const;

  /// --- candidates (triage/candidate.h): at most one at a time --- Each of these four loads and tries a source as a
  /// reload does, and starts it beside the live version. Returns the candidate's version. Throws FileError, LoadError
  /// and LimitError where a reload would refuse the source; InputError for options out of range, if there is a
  /// candidate, or if the source is the live one. A change of the policy's file goes live as usual; the candidate then
  /// goes on, and its comparison begins anew.
  VersionInfo shadow(const std::filesystem::path& path, const ShadowOptions& options = {}) const;
  VersionInfo shadow_source(std::string_view source, const ShadowOptions& options = {}) const;
  VersionInfo canary(const std::filesystem::path& path, const CanaryOptions& options = {}) const;
  VersionInfo canary_source(std::string_view source, const CanaryOptions& options = {}) const;
  /// Of the candidate, or of the last one after its end (CandidateReport::state); nothing if there was none.
  std::optional<CandidateReport> candidate() const;
  /// Makes the candidate live, as a reload does; its file is not followed. Throws InputError if there is none or a
  /// version is pinned, LoadError if it no longer fits the contract of the live version.
  void promote() const;
  /// Ends the candidate, and returns its last report. Throws InputError if there is none.
  CandidateReport end_candidate() const;

  /// --- compiler results of the live version --- The graphs that hold a whole call.
  std::vector<CapturedGraph> graphs() const;
  /// Why the gradients of such a call may get values of rows that the policy masks (docs/training.md); empty if they
  /// cannot, or if the call has no gradients. Call the policy once with such inputs before. Throws InputError as a call
  /// does.
  std::optional<UnmaskedRows> unmasked_rows(const std::vector<at::Tensor>& inputs, const Params& params = {}) const;
  /// The graphs between graph breaks, of all calls so far. In each call the script decides which of them run.
  std::vector<std::shared_ptr<const graph::Graph>> segments() const;
  /// The number of graphs of both kinds in the cache, and their memory.
  CacheStatistics cache() const;
  /// The time to compile them.
  CompileTimes compile_times() const;
  std::vector<BreakReport> breaks() const;
  std::vector<std::string> graph_breaks() const;  // the same, one line each
  /// Which outputs are flags, by position; empty until a run shows it.
  std::vector<bool> flags_outputs() const;
  /// Runs the tests of the script: each name with its failure message; an empty message means passed.
  std::vector<std::pair<std::string, std::string>> run_tests() const;

 private:
  friend class Bundle;
  friend class Runtime;
  friend TRIAGE_API std::vector<TensorMetadata> output_metadata(const Policy& policy,
                                                                const std::vector<TensorMetadata>& inputs);
  explicit Policy(std::shared_ptr<policy::PolicyCore> core) : core_(std::move(core)) {}
  policy::PolicyCore& core() const;
  [[noreturn]] void throw_output_count(size_t wanted, size_t got) const;
  std::shared_ptr<policy::PolicyCore> core_;
};

/// What a call of the policy with such inputs returns. The source of its live version runs on made-up values, in an
/// interpreter of its own: what it remembers, its state, its random numbers and its statistics stay as they are, and
/// functions of the host are not called. Throws InputError for inputs that it does not take, PolicyError where it fails
/// on each of these values or would call such a function, LimitError.
TRIAGE_API std::vector<TensorMetadata> output_metadata(const Policy& policy, const std::vector<TensorMetadata>& inputs);

/// An event in a watched directory.
struct WatchEvent {
  enum class Kind : uint8_t {
    reloaded,  ///< a policy has a new live version
    refused,   ///< the new file did not go live, or `rollback`, `pin` or `promote` cancelled its reload
    reverted,  ///< the live version failed on trial, or too often in a row; the previous one, `version`, is live again
    deleted,   ///< a policy's file is gone; its last version stays live
    restored,  ///< after `deleted` or `refused`: the file has its old content again
    added,     ///< a loadable file without a policy; the host decides whether to load it
    lost,      ///< the directory itself can no longer be watched (it was removed); the Watch keeps looking for it
    found,     ///< the directory is there again
    promoted,  ///< a candidate is live: `version`
    candidate_reverted,  ///< a canary was taken back; `version` is the live one
  };
  Kind kind;
  std::string path;     // the file, or the directory (of a bundle, too)
  int version = 0;      // the live version of the policy or bundle; 0 if there is none
  std::string message;  // of `reloaded`: what of the state starts anew; mostly empty
  Source source;  // of the refusal, or of the failure that caused `reverted` or `candidate_reverted`: file and line
};
TRIAGE_API const char* to_string(WatchEvent::Kind kind) noexcept;

struct WatchOptions {
  /// The Watch reloads when the directory has been quiet for this long (at most ten times this long after the first
  /// change).
  std::chrono::milliseconds debounce{50};
  /// Zero: the kernel reports changes (inotify). Otherwise the Watch polls the files at this interval, as network file
  /// systems need.
  std::chrono::milliseconds poll_interval{0};
  /// Called from the watching thread, one call at a time. Its exceptions are logged.
  std::function<void(const WatchEvent&)> on_event = {};
};

/// Hot reload while alive. The destructor stops the watching thread and waits for a reload in progress.
class TRIAGE_API Watch {
 public:
  Watch() = default;
  Watch(Watch&&) noexcept;
  Watch& operator=(Watch&&) noexcept;
  ~Watch();
  /// Whether it watches: false also after `stop`.
  explicit operator bool() const noexcept;
  /// Stops now, as the destructor does. From `on_event` it does not wait: the running callback is the last one.
  void stop();
  /// Checks the directory now and returns when it is done. Do not call it from `on_event`. Throws PolicyError in a
  /// function of the host that a policy calls, if the watching thread waits for that call.
  void rescan();

 private:
  friend class Runtime;
  explicit Watch(std::shared_ptr<policy::WatchCore> core) : core_(std::move(core)) {}
  std::shared_ptr<policy::WatchCore> core_;
};

/// How policies may call a function of the host.
struct FunctionOptions {
  /// The function is pure: equal inputs give equal outputs, and it does nothing else. Then a call is a node of the
  /// policy's graph, and no graph break. Equal calls may become one, unused ones may not run, and a reload may try a
  /// new version by calling it with synthetic values. Called on every thread that runs policies, on several at once.
  /// The outputs are copied if the host keeps them or they share memory with inputs; inputs must not be written to.
  /// Gradients go through it as through any code that calls LibTorch; with grad mode on, ATen runs its graphs, without
  /// loops.
  bool pure = false;
  /// Of a pure function: dtype and sizes of its outputs for inputs of such dtypes, sizes and devices (the device of the
  /// results is ignored). Called for the inputs of each call, and for other sizes, which tell triage which sizes of the
  /// outputs are those of inputs: it must be right for all sizes, or throw. A call whose outputs are others throws.
  /// Null: there is one output, of the dtype and sizes of the first input.
  std::function<std::vector<graph::TensorMeta>(const std::vector<graph::TensorMeta>&)> shapes = nullptr;
};

/// Holds policies, their host functions, and the thread that frees unused versions. Several may live in a process. The
/// destructor waits until all unused versions are freed; policies that the host still holds keep working.
class TRIAGE_API Runtime {
 public:
  /// Throws ConfigError for options out of range, and LimitError where the system gives the process no thread.
  explicit Runtime(RuntimeOptions options = {});
  Runtime(Runtime&&) noexcept;
  Runtime& operator=(Runtime&&) noexcept;
  ~Runtime();

  /// Loads a policy from a file; its extension selects the front end. Throws FileError, LoadError, LimitError. Two
  /// loads of one file give two policies, each with its own versions.
  Policy load(const std::filesystem::path& path);
  /// Loads a policy from text. Messages show `name`, and its extension selects the front end (default: ".lua").
  Policy load_source(std::string_view source, const std::string& name = "policy.lua");

  /// Loads the policies that `dir`/bundle.json lists, which go live and change together (triage/bundle.h). Throws
  /// FileError (a file is missing, is not the one that is listed, or is a script that is not listed; the bundle is for
  /// another triage), LoadError, LimitError.
  Bundle load_bundle(const std::filesystem::path& dir);

  /// Defines a host function for policies that are loaded later: tensors in, tensors out. A call of it is a graph
  /// break, unless it is pure. If it throws, so does the call, as PolicyError with the line of the script. What is
  /// defined under one name last, by this or the next two, holds. Throws InputError for an empty name, a null function,
  /// and `shapes` of a function that is not pure.
  void define(const std::string& name, std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> fn,
              FunctionOptions options = {});

  /// Gives policies that are loaded later a tensor under a global name. It is not copied: the host may write new values
  /// to it between calls, and the next call reads them without compiling anything. Scripts cannot write to it. Graphs
  /// hold as long as its dtype, device, shape and requires_grad stay. Throws InputError for an empty name or an
  /// undefined tensor.
  void define_tensor(const std::string& name, at::Tensor tensor);

  /// Gives policies that are loaded later a TorchScript module as a function: `forward` with tensors gives a tensor, or
  /// a tuple or list of them, always as many. A call is a node of the policy's graph, and no graph break; it runs
  /// exactly where the script calls it, also for samples that another branch takes. The module is shared, not copied:
  /// its parameters and its training mode are the host's, and it must bear calls on several threads at once. A reload
  /// tries new versions by calling it with synthetic values, unless it is in training mode. With grad mode on, ATen
  /// runs the graphs that call it, without loops. Where `forward` may write to an argument (torch::jit::AliasDb says
  /// so, now), it gets copies. Throws InputError for an empty name, and for a module without `forward`.
  void define_module(const std::string& name, const torch::jit::Module& module);

  /// Policies loaded from files directly in `dir`, before or after this call, follow these files and those they read
  /// while the Watch lives; a bundle loaded from `dir` follows its bundle.json. Two seconds after the last change, what
  /// is live is what a fresh load would give. Throws FileError without such a directory, or without a file descriptor.
  Watch watch(const std::filesystem::path& dir, WatchOptions options = {});

  /// The policies that still have a handle, in the order of loading.
  std::vector<Policy> policies() const;

 private:
  friend TRIAGE_API std::string metrics_text(const Runtime& runtime);
  std::shared_ptr<policy::RuntimeCore> core_;
};

}  // namespace triage
