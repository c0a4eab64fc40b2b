#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "bindings/cli/commands/incident/advice.h"
#include "bindings/cli/commands/incident/policy_incident.h"

namespace triage::cli {

/// What `triage incident --json` prints of a policy; the text and the page are made of it, too. `ids`: with the flagged
/// samples.
nlohmann::ordered_json report_of(const PolicyIncident& policy, const LogSources& sources, bool ids);

/// What happened, in a sentence without a full stop: "version 2 went live: the file on the disk changed".
std::string sentence_of(const PolicyIncident::IncidentEvent& event);
/// "12.5 %", "under 0.1 %".
std::string percent(double share);

}  // namespace triage::cli
