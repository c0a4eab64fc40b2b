#pragma once
#include "bindings/lua/state/state.h"

namespace triage::lua {

/// Sets the global `torch`: constants, functions of ours, and every operator of the dispatcher by name. After
/// open_tensor.
void open_torch(lua_State* L);

/// Pushes the table `core`, which our own Lua code gets as its argument. It has `core.op(name, overload)`: the function
/// that calls exactly that overload, positionally; other parts of the bindings add to it.
void push_core(lua_State* L);

}  // namespace triage::lua
