#pragma once
#include <lua.hpp>

namespace triage::lua {

/// Pushes `triage.config`: the settings of capture, which hold for the process. Policies may only read it.
void push_compiler_config(lua_State* L);

/// Adds set_stance, get_stance, set_logs and reset, for trusted scripts, to the table on top of the stack.
void add_compiler_control(lua_State* L);

}  // namespace triage::lua
