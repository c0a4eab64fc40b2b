#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bindings/cli/commands/incident/policy_incident.h"
#include "bindings/cli/commands/incident/source_texts.h"

namespace triage::cli {

/// What the way back is printed from.
struct LogSources {
  const SourceTexts& texts;
  bool whole;                        // nothing of the log is left out
  std::vector<std::string> folders;  // in which the path of a policy may begin, where the log has a relative one
};

/// What to do: {"do": "rollback" | "restore" | "nothing" | "unknown", "text", "commands": [...]}. A way back is the
/// version that was live last of those with less than half of the share of the live one, by all that the log tells of
/// its source.
nlohmann::ordered_json advice_for(const PolicyIncident& policy, const LogSources& sources);

}  // namespace triage::cli
