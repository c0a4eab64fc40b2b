#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace triage::cli {

/// The page of ReportData::page, in HTML. What the data say stays text.
std::string page_with(const nlohmann::ordered_json& data);

}  // namespace triage::cli
