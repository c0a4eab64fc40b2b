#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bindings/cli/commands.h"
#include "bindings/cli/commands/decisions/decision_times.h"

namespace triage::cli {

/// What of a decision a question concerns.
struct Match {
  struct SampleMatch {
    const nlohmann::ordered_json* sample;
    std::vector<const nlohmann::ordered_json*> errors;
  };
  bool matches = false;
  std::vector<SampleMatch> samples;  // of those that the line lists, with the errors that are asked about
};

/// Which decisions the options of `triage decisions` ask for.
class DecisionFilter {
 public:
  /// Throws UsageError for a time, version or word that is none.
  explicit DecisionFilter(const DecisionsCommand& options);
  /// Of a line of the log: policies may have names for codes of their own.
  void note_codes(const nlohmann::ordered_json& decision);
  /// Throws UsageError where neither triage nor a line that was noted has the code.
  void check_code() const;
  bool in_time(const nlohmann::ordered_json& line) const;
  Match match(const nlohmann::ordered_json& decision) const;
  /// Whether all decisions of the time are asked for.
  bool takes_all() const;

 private:
  bool is_of_version(const nlohmann::ordered_json& decision) const;

  const DecisionsCommand& options_;
  const TimeSpan times_;
  const std::string code_;
  std::set<std::string> codes_;           // of the lines
  const std::optional<uint64_t> number_;  // of --version; nothing where that is the beginning of a hash
};

/// A field of text; empty where there is none.
std::string field(const nlohmann::ordered_json& object, const char* name);
uint64_t count_in(const nlohmann::ordered_json& object, const char* name);

}  // namespace triage::cli
