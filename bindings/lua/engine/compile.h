#pragma once
#include <lua.hpp>

namespace triage::lua {

/// Pushes the table `triage`: compile, explain, is_compiling, graph_break, list_backends, register_backend (trusted scripts), version.
void push_triage(lua_State* L);

/// The registry reference of the function that a compiled function at `index` runs; LUA_NOREF for any other value.
int compiled_function_of(lua_State* L, int index);

}  // namespace triage::lua
