#pragma once
#include <lua.hpp>

/// Putting a function of ours in front of one of Lua's library. The old function then runs in the frame of the new one,
/// so that Lua's messages name the function and the script's line as before.
namespace triage::lua {

/// Replaces field `name` of the table on top of the stack; does nothing where it holds no C function,
/// or one that was wrapped before.
void wrap_library_function(lua_State* L, const char* name, lua_CFunction wrapper);

/// The same for the C function on top of the stack.
void wrap_function(lua_State* L, lua_CFunction wrapper);

/// From the wrapper: runs the old function on what now are the arguments; returns the number of its results. A function
/// of C sees numbers, not what stands for them while a graph is captured (tensor_semantics.h, specialize).
int run_original(lua_State* L);

/// The same for functions that hand their arguments on, to the script or into its tables.
int hand_on(lua_State* L);

}  // namespace triage::lua
