#pragma once
#include <lua.hpp>

/// Lua's operators on the numbers of a capture (values/number.h).
namespace triage::lua {

/// Registers their metatable.
void open_numbers(lua_State* L);

/// Pushes the result of comparing the values at 1 and 2, of which at least one is symbolic and none a tensor. `method`:
/// "lt", ...
void compare_numbers(lua_State* L, const char* method);

}  // namespace triage::lua
