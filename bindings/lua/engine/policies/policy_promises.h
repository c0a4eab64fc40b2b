#pragma once
#include <triage/verify.h>

#include <lua.hpp>

#include <optional>
#include <string>
#include <vector>

namespace triage::lua {

/// verify = { unchanged = false, finite = {"z"} }, of the policy's table at `table`: what the policy promises of the
/// laws. Nothing where it has no such field; `verify = true` promises what every policy does. `finite = "nan"`: Inf may
/// leave. `outputs` are their names, as far as the policy names them. Throws LoadError.
std::optional<std::vector<Promise>> read_promises(lua_State* L, int table, const std::vector<std::string>& outputs);

}  // namespace triage::lua
