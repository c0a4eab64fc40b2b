#pragma once
#include <lua.hpp>

namespace triage::lua {

/// Pushes the table `triage`: compile, explain, is_compiling, graph_break, list_backends, register_backend (trusted
/// scripts), version.
void push_triage(lua_State* L);

}  // namespace triage::lua
