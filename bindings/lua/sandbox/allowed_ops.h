#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace triage::lua {

/// Whether policies may call an operator, by its full name ("aten::add"). For Context::op_filter.
bool op_allowed_in_policies(const std::string& name);

/// The list behind it: base names, sorted.
const std::vector<std::string_view>& allowed_operators();

}  // namespace triage::lua
