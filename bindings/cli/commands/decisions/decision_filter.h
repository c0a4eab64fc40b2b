#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bindings/cli/commands.h"

namespace triage::cli {

/// What of a decision a question concerns.
struct Match {
  struct Sample {
    const nlohmann::ordered_json* sample;
    std::vector<const nlohmann::ordered_json*> errors;
  };
  bool matches = false;
  std::vector<Sample> samples;  // of those that the line lists, with the errors that are asked about
};

/// Which decisions the options of `triage decisions` ask for.
class DecisionFilter {
 public:
  /// Throws UsageError for a time, code or word that is none.
  explicit DecisionFilter(const DecisionsCommand& options);
  bool in_time(const nlohmann::ordered_json& line) const;
  Match match(const nlohmann::ordered_json& decision) const;
  /// Whether all decisions of the time are asked for.
  bool takes_all() const;

 private:
  const DecisionsCommand& options_;
  const std::string since_, until_, code_;
};

/// A field of text; empty where there is none.
std::string field(const nlohmann::ordered_json& object, const char* name);
uint64_t count_in(const nlohmann::ordered_json& object, const char* name);

}  // namespace triage::cli
