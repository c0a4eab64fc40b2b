#pragma once
#include <lua.hpp>

namespace triage::lua {

/// Pushes the table `triage.config`: what capture does with what one graph cannot hold as it is.
void push_capture_config(lua_State* L);

/// Whether `x:item()` stays in captured code as a number of the graph.
bool captures_scalar_outputs(lua_State* L);

}  // namespace triage::lua
