#pragma once
#include <lua.hpp>

/// A branch that the batch does not take is left by an error of our own (capture::BranchLeft), which unwinds the script. No code
/// of the script may notice: neither its message handlers nor its to-be-closed variables run for it, and what catches errors
/// hands it on.
namespace triage::lua {

/// How many functions there are on the stack, the running one included.
int stack_depth(lua_State* L);

/// Before the error is raised: what functions about to be unwound would close by code of the script, is not closed. Scopes of
/// the library (torch.no_grad, ...) are.
void forget_closers(lua_State* L);

/// lua_pcall of what is unwound to here; any other error is to be raised again. What would have handled it where it was raised,
/// had it not been caught here (the message handler of an xpcall around, else `host_handler`), has been called there, and is not
/// called again. For functions that run no Lua code between this and raising again.
int call_and_hand_on(lua_State* L, int arguments, lua_CFunction host_handler);
/// Whether the error at `index` was handled so, which is then forgotten.
bool was_handled(lua_State* L, int index);

/// Puts what the script may not notice out of the reach of the message handler at `index`, a value that can be called.
void shield_handler(lua_State* L, int index);

}  // namespace triage::lua
