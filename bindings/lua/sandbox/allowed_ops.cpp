#include "bindings/lua/sandbox/allowed_ops.h"

#include <algorithm>

namespace triage::lua {

const std::vector<std::string_view>& allowed_operators() {
  static const std::vector<std::string_view> names = {
#include "bindings/lua/sandbox/allowed_ops.inc"
  };
  return names;
}

bool op_allowed_in_policies(const std::string& name) {
  constexpr std::string_view prefix = "aten::";
  if (std::string_view(name).substr(0, prefix.size()) != prefix) return false;
  const auto& names = allowed_operators();
  return std::binary_search(names.begin(), names.end(), std::string_view(name).substr(prefix.size()));
}

}  // namespace triage::lua
