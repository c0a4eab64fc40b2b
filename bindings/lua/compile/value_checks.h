#pragma once
#include <lua.hpp>

namespace triage::lua {

/// Adds `check`, `check_is_size` and `constrain_as_...` to the table `triage` on top of the stack.
void add_checks(lua_State* L);

}  // namespace triage::lua
