#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace triage::cli {

/// What changes from one text to another, as `diff -u` shows it, a line each: "--- NAME", "+++ NAME", and hunks with
/// three lines around each change. Empty where nothing changes.
std::vector<std::string> unified_diff(std::string_view before, std::string_view after, const std::string& name_before,
                                      const std::string& name_after);

}  // namespace triage::cli
