#pragma once
#include <lua.hpp>

#include <string>

/// Which tables and functions were made during the running capture. What is older than the capture was there before the
/// call that is being recorded and is there after it: writing to it is a side effect that no graph holds. The same goes
/// inside a branch of IF, which a graph runs for every row: there, what is older than the branch counts as outside.
/// In a branch of natural Lua, recorded or not, writing to what is older than the branch is an error.
namespace triage::lua {

/// A new function, made by the function running at level 1.
void mark_created_function(lua_State* L, int index);

/// The value at `index` goes on where it was whenever it is called (an iterator, a coroutine), so calling it changes
/// it. A function of C then sees to it itself.
void mark_stateful(lua_State* L, int index);
/// The value at `index`, which is such a one, is about to go on: as a write to it, if it is older than the capture or
/// branch.
void note_state_use(lua_State* L, int index);

/// A write to the variable `name`, which outlives a function; `levels_out`: the function at level 1 took it from
/// so many functions out, 0: it is a global. `selecting`: the innermost so many branches keep what it was for the
/// samples of others. Breaks the graph where the variable is older than the capture.
void note_variable_write(lua_State* L, const char* name, int levels_out, int selecting);

}  // namespace triage::lua
