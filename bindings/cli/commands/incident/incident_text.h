#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace triage::cli {

/// The report of `triage incident` for a person. `why_nothing`: why there is none; empty: there is one.
void print_incident(const nlohmann::ordered_json& report, const std::string& why_nothing);

}  // namespace triage::cli
