#pragma once
#include <nlohmann/json.hpp>

#include "bindings/cli/commands/incident/policy_incident.h"
#include "bindings/cli/commands/incident/source_texts.h"

namespace triage::cli {

/// What to do: {"do": "rollback" | "restore" | "nothing" | "unknown", "text", "commands": [...]}. A way back is the version that was
/// live last of those with less than half of the share of the live one.
nlohmann::ordered_json advice_for(const PolicyIncident& policy, const SourceTexts& texts, bool whole);

}  // namespace triage::cli
