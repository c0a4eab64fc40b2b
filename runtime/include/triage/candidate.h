#pragma once
#include <triage/api.h>
#include <triage/layout.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// A new version of a policy that is tried beside the live one, before it goes live: `Policy::shadow`,
/// `Policy::canary`. docs/rollouts.md shows both at work.
namespace triage {

enum class CandidateKind : uint8_t {
  shadow,  ///< runs on a share of the batches after they were answered; it answers no call
  canary,  ///< answers a share of the calls
};
TRIAGE_API const char* to_string(CandidateKind kind) noexcept;

enum class CandidateState : uint8_t {
  running,
  promoted,  ///< it is a version as others, and went live
  reverted,  ///< a rule of CanaryOptions was broken
  ended,     ///< the host ended it, or the Runtime is gone
};
TRIAGE_API const char* to_string(CandidateState state) noexcept;

struct CandidateReport;

/// Which calls are of the share: those whose `RunOptions::decision_id` the hash of the candidate's source selects, so
/// that a decision meets the same side in every process, and a larger share has all decisions of a smaller one. Calls
/// without an id take turns.
struct ShadowOptions {
  /// Of the calls, more than 0, at most 1.
  double share = 0.1;
  /// Calls that wait for the candidate, of all policies of the Runtime, and the memory of their tensors. Calls beyond
  /// either are not compared, and are counted (ShadowReport::dropped).
  size_t queue = 64, queue_bytes = size_t{256} << 20;
  /// Differences up to this, absolute, are none.
  double tolerance = 0;
  /// Samples listed in the report.
  size_t examples = 10;
};

/// What takes a canary back. 0 turns a rule off.
struct RevertIf {
  /// Calls that the candidate failed and the live version answered.
  uint64_t failures = 1;
  /// The share of flagged samples, as a multiple of that of the live version in the same period.
  double flagged_ratio = 2.0;
  /// The 99th percentile of the time of calls, as a multiple of that of the live version in the same period.
  double p99_ratio = 1.5;
};

struct CanaryOptions {
  double share = 0.05;  ///< as in ShadowOptions
  /// The candidate goes live when it has answered this many calls and no rule was broken. 0: only `Policy::promote`
  /// does it.
  uint64_t promote_after = 10'000;
  RevertIf revert_if = {};
  /// Both sides must have this many before the ratios are compared. A ratio counts as broken when it is beyond its
  /// bound by more than four standard errors: noise does not revert a candidate (docs/rollouts.md).
  uint64_t min_calls = 500, min_samples = 1'000;
  /// Called once when the candidate is promoted, reverted or ended, on a thread of the Runtime. Its exceptions are
  /// logged. It may call the policy. It is not called after the Runtime is gone.
  std::function<void(const CandidateReport&)> on_end = {};
};

/// Calls of one side, since the comparison began. Canary: the calls that each version answered. Shadow: the calls that
/// were compared, as answered by each.
struct CandidateSide {
  uint64_t calls = 0;
  uint64_t failures = 0;  ///< of the candidate: that the live version answered
  uint64_t samples = 0, flagged = 0;
  /// Upper bounds, within 1/8, of the time that half, 90 % and 99 % of the calls took. Calls that captured a graph, and
  /// those of a canary that was still compared with the form of the live version's answers, are left out. 0: there were
  /// none.
  std::chrono::nanoseconds p50{0}, p90{0}, p99{0};
};

/// Samples that one version flags and the other does not.
struct FlagDifference {
  int64_t location;
  Code code;
  uint64_t only_live = 0, only_candidate = 0;
  std::string example;         ///< the first such sample, as in SampleDifference::sample
  std::string code_name = {};  ///< as the version calls the code that flags the sample
};

/// A sample for which an output differs.
struct SampleDifference {
  std::string decision_id;  ///< as the host gave it; may be empty
  std::string sample;       ///< the host's name of it, or its number in the batch
  std::string output;
  double difference = 0;  ///< the largest absolute one; infinite where only one of two values is finite
};

/// How a candidate in the shadow differs.
struct ShadowReport {
  uint64_t compared = 0;        ///< calls
  uint64_t failed = 0;          ///< calls that the candidate failed, or answered in another form
  uint64_t dropped = 0;         ///< calls that the queue had no room for
  uint64_t not_comparable = 0;  ///< calls that nothing can be said of; `why_not` names the latest reason
  std::string why_not;
  uint64_t samples = 0;                        ///< of the compared calls
  uint64_t only_live = 0, only_candidate = 0;  ///< samples that one of the two flags at all
  std::vector<FlagDifference> flags;           ///< by location, code and its name; the severity does not count
  uint64_t different = 0;                      ///< samples for which an output differs by more than the tolerance
  uint64_t different_unflagged = 0;            ///< ... and that neither version flags
  double max_difference = 0;  ///< as in SampleDifference, also of outputs that are not one row for each sample
  std::vector<SampleDifference> examples;  ///< the first ones
};

struct CandidateReport {
  CandidateKind kind = CandidateKind::shadow;
  CandidateState state = CandidateState::running;
  std::string policy, path;  ///< its name; the file or the name of the candidate
  int version = 0;           ///< the candidate's number, and hash
  std::string hash;
  int live_version = 0;  ///< that it is compared with
  std::string live_hash;
  double share = 0;
  uint64_t promote_after = 0;
  std::chrono::system_clock::time_point since;  ///< when it began
  uint64_t restarts = 0;     ///< of the comparison, because another version went live; all counts are of the latest
  std::string reason;        ///< why it was promoted, reverted or ended; empty while it runs
  std::string last_failure;  ///< of the candidate
  std::vector<std::string> notes;  ///< what the report cannot say, and rules that could not be checked; sentences
  CandidateSide live, candidate;
  ShadowReport shadow;  ///< of a shadow

  /// Several lines. Names and messages of scripts are in it as they are.
  TRIAGE_API std::string text() const;
  /// One object, on one line.
  TRIAGE_API std::string json() const;
};

}  // namespace triage
