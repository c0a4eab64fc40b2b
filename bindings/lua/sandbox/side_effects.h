#pragma once
#include <lua.hpp>

#include <cstddef>

/// Functions of Lua's library whose effect or result one graph cannot hold: `print` (which goes where the host wants it), all
/// of `io`, `os` and `coroutine`, `collectgarbage`, and the numbers that `math.random` draws. While capturing, each is a graph
/// break. `pcall` and `xpcall` tell the recorder of the operators inside.
namespace triage::lua {

struct Context;

void open_side_effects(lua_State* L);

/// Counts text of a script that is about to be shown outside. False where a policy has used up its share of a load or call.
bool may_show(Context& context, size_t bytes) noexcept;

/// Is it `pcall` or `xpcall`, as scripts find them?
bool is_protected_call(lua_CFunction function);

}  // namespace triage::lua
