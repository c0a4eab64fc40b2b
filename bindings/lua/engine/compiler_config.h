#pragma once
#include <lua.hpp>

namespace triage::lua {

/// Pushes `triage.config`: the settings of capture, which hold for the process. Policies may only read it.
void push_compiler_config(lua_State* L);

}  // namespace triage::lua
