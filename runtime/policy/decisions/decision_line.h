#pragma once
#include "runtime/policy/attribution/counters.h"
#include "runtime/policy/attribution/flagged.h"
#include "runtime/policy/capsules/decision_capsule.h"

#include <triage/config.h>
#include <triage/decisions.h>
#include <triage/statistics.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace triage::policy {

/// What the log says of one call, as the calling thread leaves it: text and numbers, nothing formatted.
struct Decision {
  struct DecisionSample {
    int64_t sample;
    std::string id;
    const char* done;
    size_t errors_end;  // in `errors`, where those of the next sample begin
    size_t errors_left_out;
  };
  std::chrono::system_clock::time_point time;  // when the call began
  std::chrono::nanoseconds duration{0};
  std::string decision_id, trace_id, policy, path, hash, failure;
  std::optional<FailureKind> failure_kind;
  int version = 0, live_version = 0;
  Answered answered = Answered::failed;
  CallForm form = CallForm::none;
  int64_t batch = 0, flagged = 0, repaired = 0;
  uint64_t full = 0;                       // of the flagged samples: records without a free slot
  std::vector<ViolationCount> violations;  // of declared ranges
  Counters::Flagged totals;  // of all calls so far of the version that was called; no samples: they are not counted
  std::vector<DecisionSample> samples;
  std::vector<uint16_t> errors;                                    // slots
  std::vector<std::pair<size_t, std::vector<int64_t>>> positions;  // of errors, by their place there, in its order
  CodeNames codes;                                                 // of the version that answered
  std::string capsule;
  std::unique_ptr<UnsavedCapsule> unsaved;
};

/// What happened to a policy or a bundle. docs/decisions.md has the words of `event` and `by`. What is empty or 0 is
/// not in the line.
struct PolicyEvent {
  const char* event;
  const char* by = "";
  int version = 0;  // the one that the event is about; of "refused", "pinned" and "unpinned" the live one
  std::string hash = {};
  std::string kept = {};  // the file of KeptSources that has its source
  // Of "live": the version that was live before, and the counts of its calls.
  int previous_version = 0;
  std::string previous_hash = {};
  Counters::Flagged previous_totals = {};
  std::string reason = {};                                  // an error, or a rule
  const char* kind = "";                                    // of a candidate
  double share = 0;                                         // of the calls, that it gets
  std::string param = {}, value = {}, previous_value = {};  // of "param"
  std::string policy = {}, bundle = {}, path = {};          // ChangeLog::note sets the names of what it is about
  int bundle_version = 0;                                   // as `Bundle::rollback` takes it
  std::chrono::system_clock::time_point time = std::chrono::system_clock::now();
};

inline constexpr size_t most_errors_of_sample = 64, longest_id = 1024, longest_failure = 4096;

/// Makes lines of decisions, by the rules of the host. Immutable.
class DecisionLines {
 public:
  /// Throws ConfigError for a name that is no field, or cannot be left out or masked.
  explicit DecisionLines(const DecisionLogOptions& options);
  /// One line of JSON in ASCII, without its end.
  std::string line(const Decision& decision) const;
  std::string line(const PolicyEvent& event) const;
  /// That `count` decisions are missing, the first of them since `since`.
  std::string dropped_line(uint64_t count, std::chrono::system_clock::time_point since) const;

 private:
  class Object;
  enum class Rule : uint8_t { keep, mask, drop };
  Rule rule_of(std::string_view field) const;
  Rule own_rule_of(std::string_view field) const;

  std::vector<std::pair<std::string, Rule>> rules_;
  std::string key_;
};

/// "2026-05-04T03:02:01.000123Z"
std::string time_text(std::chrono::system_clock::time_point time);

}  // namespace triage::policy
