#pragma once
#include <lua.hpp>

/// Functions of Lua's library whose effect or result one graph cannot hold: `print` (which goes where the host wants it), all
/// of `io`, `os` and `coroutine`, `collectgarbage`, and the numbers that `math.random` draws. While capturing, each is a graph
/// break. `pcall` and `xpcall` tell the recorder of the operators inside.
namespace triage::lua {

void open_side_effects(lua_State* L);

/// Is it `pcall` or `xpcall`, as scripts find them?
bool is_protected_call(lua_CFunction function);

}  // namespace triage::lua
