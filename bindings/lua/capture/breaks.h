#pragma once
#include <lua.hpp>

namespace triage::lua {

/// Adds what `scripts/prelude/capture.lua` needs to the table on top of the stack: running functions while graph breaks
/// raise, or while nothing is captured.
void add_break_control(lua_State* L);

}  // namespace triage::lua
