#pragma once
#include <lua.hpp>

/// `pcall` and `xpcall`, which tell the recorder of the operators inside, and hand on what no script may catch
/// (state/unwinding.h).
namespace triage::lua {

/// Puts ours in the place of Lua's, in the table of globals.
void wrap_protected_calls(lua_State* L);

/// lua_pcall of what is unwound to here; any other error is to be raised again. What would have handled it where it was
/// raised, had it not been caught here (the message handler of an xpcall around, else `host_handler`), has been called
/// there, and is not called again. For functions that run no Lua code between this and raising again.
int call_and_hand_on(lua_State* L, int arguments, lua_CFunction host_handler);

}  // namespace triage::lua
