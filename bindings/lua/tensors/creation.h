#pragma once
#include "bindings/lua/state/state.h"

/// `torch.tensor(nested, {dtype, device, requires_grad})`.
namespace triage::lua {

int create_tensor(lua_State* L);

}  // namespace triage::lua
