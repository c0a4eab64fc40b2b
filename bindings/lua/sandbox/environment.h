#pragma once
#include <lua.hpp>

namespace triage::lua {

/// Pushes the globals of a policy: what an allow-list takes from the global table, libraries as read-only views.
/// Nothing that reaches files, the network, other policies, seeds or threads is on it.
void push_policy_environment(lua_State* L);

}  // namespace triage::lua
