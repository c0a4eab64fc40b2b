#pragma once
#include <lua.hpp>

#include <cstddef>

/// Functions of Lua's library whose effect or result one graph cannot hold: `print` (which goes where the host wants
/// it), all of `io`, `os` and `coroutine`, `collectgarbage`, and the numbers that `math.random` draws. While capturing,
/// each is a graph break.
namespace triage::lua {

void open_side_effects(lua_State* L);

}  // namespace triage::lua
