#pragma once
#include <lua.hpp>

#include <string>

namespace triage::lua {

/// Remembers the tables in the environment at the top of the stack as libraries, which scripts do not change. Pops it.
void mark_libraries(lua_State* L);

/// Everything that the function at `index` can read besides its arguments, as bytes: the values of its upvalues and of
/// the script's globals, tables and nested functions followed through (tensors by identity and version). Two calls with
/// equal bytes see the same world.
std::string closure_state(lua_State* L, int index);

}  // namespace triage::lua
