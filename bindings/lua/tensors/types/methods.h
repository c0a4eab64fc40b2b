#pragma once
#include "bindings/lua/state/state.h"

/// Methods of tensors that are more than a call of one operator: those that read sizes or values, `to` and its short
/// forms, and autograd.
namespace triage::lua {

void add_tensor_methods(lua_State* L);

}  // namespace triage::lua
