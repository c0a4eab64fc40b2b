#pragma once
#include <lua.hpp>

/// What the modules of scripts/prelude/nn*.lua need from C++, and the optimizers.
namespace triage::lua {

/// Adds to `core`; in trusted states also TorchScript modules, and the global `optim`. After open_torch, before
/// open_prelude.
void open_nn(lua_State* L);

/// Adds to the table on top of the stack; each of the parts.
void add_parameters(lua_State* L);
void add_torch_script(lua_State* L);

/// Pushes the table `optim`.
void push_optim(lua_State* L);

}  // namespace triage::lua
