#pragma once
#include <lua.hpp>

/// Putting a function of ours in front of one of Lua's library. The old function then runs in the frame of the new one,
/// so that Lua's messages name the function and the script's line as before.
namespace triage::lua {

/// Replaces field `name` of the table on top of the stack; does nothing where it holds no C function,
/// or one that was wrapped before.
void wrap_library_function(lua_State* L, const char* name, lua_CFunction wrapper);

/// From the wrapper: runs the old function on what now are the arguments; returns the number of its results.
int run_original(lua_State* L);

}  // namespace triage::lua
