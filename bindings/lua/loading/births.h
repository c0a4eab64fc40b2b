#pragma once
#include <lua.hpp>

#include <cstdint>

/// Which tables and functions were made during the running capture. What is older than the capture was there before the
/// call that is being recorded and is there after it: writing to it is a side effect that no graph holds. The same goes
/// inside a branch of IF, which a graph runs for every row: there, what is older than the branch counts as outside.
namespace triage::lua {

/// A new function, made by the function running at level 1.
void mark_born_function(lua_State* L, int index);

/// Is the upvalue that the function at level 1 took from `levels_out` functions out a variable of this capture (and
/// branch)?
bool owns_upvalue(lua_State* L, int levels_out);

}  // namespace triage::lua
