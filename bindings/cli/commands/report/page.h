#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace triage::cli {

/// A page in HTML that a script draws from `data`: "page.js" those of ReportData::page, "incident.js" those of `triage
/// incident`, "statistics.js" those of `triage statistics`. What the data say stays text.
std::string page_with(std::string_view title, std::string_view script, const nlohmann::ordered_json& data);

}  // namespace triage::cli
