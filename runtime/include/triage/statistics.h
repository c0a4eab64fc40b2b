#pragma once
#include <triage/api.h>
#include <triage/cache_statistics.h>
#include <triage/layout.h>
#include <triage/positions.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// How calls of policies were answered: of one call (RunInfo), and counted (PolicyStatistics).
namespace triage {

class Runtime;

/// What answered a call.
enum class Answered : uint8_t {
  live,            ///< the live version
  canary,          ///< a candidate that gets a share of the calls
  previous,        ///< the version before it, because the live one failed on trial or too often in a row; the live one,
                   ///< because a candidate failed
  last_good,       ///< OnError::last_good: the latest earlier version that has run
  passed_through,  ///< OnError::pass_through: no version; the inputs were returned
  failed,          ///< nothing: the call threw
};
inline constexpr size_t answered_count = 6;
TRIAGE_API const char* to_string(Answered answered) noexcept;

/// How the answering version computed its outputs.
enum class CallForm : uint8_t {
  none,      ///< no version did
  graph,     ///< a captured graph, without the script
  segments,  ///< the graphs between the breaks; the script decided which
  script,    ///< the script, operator by operator
  capture,   ///< the script, while a graph was captured
};
inline constexpr size_t call_form_count = 5;
TRIAGE_API const char* to_string(CallForm form) noexcept;

/// The error with which a version failed a call, or with which a call was refused.
enum class FailureKind : uint8_t {
  policy,       ///< PolicyError: an error of the script, of an operator, or of the declared outputs
  limit,        ///< LimitError: a budget or the deadline
  graph_break,  ///< GraphBreakError: under fullgraph
  input,        ///< InputError, ValidationError: the call does not fit the signature; a mistake of the host
  other,        ///< another exception, such as std::bad_alloc
};
inline constexpr size_t failure_kind_count = 5;
TRIAGE_API const char* to_string(FailureKind kind) noexcept;

/// How one call was answered. `run` fills it, also when it throws. The host owns it, one for each thread: a `run` that
/// reuses one does not allocate for it.
struct RunInfo {
  int version = 0;   ///< that answered; the live one if none did
  std::string hash;  ///< of that version (VersionInfo::hash)
  Answered answered = Answered::failed;
  CallForm form = CallForm::none;
  /// What runs the fused loops of the graph; all zero for other forms, and for graphs without fused loops.
  LoopTiers loops;
  std::chrono::nanoseconds time{0};  ///< of the whole call
  /// Samples with an error in an output of flags, and how many of those an output differs for from the input that it
  /// belongs to. -1: not counted (RuntimeOptions::count_flags, no output of flags, flags on another device).
  int64_t flagged = -1, repaired = -1;
  /// Samples of outputs that were not within their declared ranges; a sample of two such outputs counts twice. -1: not
  /// counted (masks on another device).
  int64_t violations = 0;
  std::string failure;  ///< the message of the live version's failure; empty if it answered
  /// Of the locations that the policy lists in `positions`; pass them to flags::pretty_print
  /// (InspectOptions::positions).
  std::vector<FirstPositions> positions = {};
};

/// How many samples have an error of this kind; a sample with two such errors counts twice.
struct FlagCount {
  int64_t location;
  Code code;
  Severity severity;
  uint64_t count;
  std::string code_name = {};  ///< as the version calls the code that counted the samples
};

/// Samples of an output that were not within its declared range (OutputRange).
struct ViolationCount {
  std::string output;
  uint64_t samples;
};

/// Latencies are counted in buckets: bucket i holds calls of less than `latency_bound(i)` that are in no earlier one,
/// and the last bucket all others.
inline constexpr size_t latency_bucket_count = 28;
/// 512 ns, 1.024 us, ... doubling.
constexpr std::chrono::nanoseconds latency_bound(size_t bucket) noexcept {
  return std::chrono::nanoseconds{int64_t{512} << bucket};
}

/// Counts of calls. No count decreases.
struct TRIAGE_API CallStatistics {
  std::array<std::array<uint64_t, call_form_count>, answered_count> answers = {};  ///< by Answered, then CallForm
  std::array<uint64_t, failure_kind_count> failures = {};                          ///< by FailureKind
  std::array<uint64_t, latency_bucket_count> latency = {};
  std::chrono::nanoseconds time{0};  ///< of all calls
  uint64_t samples = 0;              ///< of outputs of flags that were counted
  uint64_t flagged = 0;              ///< samples with an error
  uint64_t repaired = 0;             ///< flagged samples for which an output differs from its input
  uint64_t uncounted = 0;            ///< calls whose flags lie on another device, and were not counted
  uint64_t full = 0;                 ///< samples whose record has no free slot: later errors of theirs may be lost
  std::vector<FlagCount> flags;      ///< by location, code and its name, and severity
  /// Of the outputs with a range, in the order of the signature; also those without a violation. Masks on another
  /// device are not read.
  std::vector<ViolationCount> violations;
  uint64_t recompiles = 0;  ///< calls that no captured graph fitted, after the first
  uint64_t graph_breaks = 0;

  uint64_t calls() const noexcept;
  uint64_t answered(Answered by) const noexcept;
  uint64_t form(CallForm of) const noexcept;
  /// An upper bound of the latency that `share` (0 to 1) of the calls had: the bound of a bucket. 0 without calls.
  std::chrono::nanoseconds latency_quantile(double share) const noexcept;
  CallStatistics& operator+=(const CallStatistics& other);
};

/// Of one policy since it was loaded. A call counts for the version that was live when it began, whatever answered it;
/// a call that a candidate was asked for counts for the candidate.
struct PolicyStatistics {
  struct Version {
    int number = 0;
    std::string hash;
    CallStatistics calls;
  };
  CallStatistics total;              ///< of all versions, also of those that are gone
  std::vector<Version> versions;     ///< those kept for rollback or still in use, a candidate too, oldest first
  uint64_t reloads = 0;              ///< versions that went live, the first one included
  uint64_t refused = 0;              ///< sources that did not
  uint64_t reverted = 0;             ///< versions that went live, failed, and were replaced by the one before
  uint64_t candidates = 0;           ///< that were started
  uint64_t promoted = 0;             ///< candidates that went live; they are among `reloads`
  uint64_t candidates_reverted = 0;  ///< canaries that a rule took back
};

/// Statistics of all policies of `runtime` that have a handle, in Prometheus' text format (version 0.0.4). Counters
/// have the labels `policy` and `path`; policies that share both are added up. docs/operations.md lists the
/// metrics. Thread-safe.
TRIAGE_API std::string metrics_text(const Runtime& runtime);

}  // namespace triage
