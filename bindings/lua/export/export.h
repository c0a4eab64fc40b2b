#pragma once
#include <lua.hpp>

namespace triage::lua {

/// Adds `export`, `load_exported` and the escape hatches of capture to the table `triage` on top of the stack.
void add_export(lua_State* L);

}  // namespace triage::lua
