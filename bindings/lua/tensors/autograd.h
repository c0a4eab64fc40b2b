#pragma once
#include "bindings/lua/state.h"

/// Gradient modes and `torch.autograd.grad`.
namespace triage::lua {

/// Adds `no_grad`, `enable_grad`, `is_grad_enabled`, `set_grad_enabled` and `autograd` to the table on top of the
/// stack.
void add_autograd(lua_State* L);

}  // namespace triage::lua
