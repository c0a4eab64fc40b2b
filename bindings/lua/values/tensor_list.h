#pragma once
#include "bindings/lua/state/state.h"

#include <string>
#include <vector>

namespace triage::lua {

/// The tensors of the list at `index`. Raises where it is no table, or holds something else: "`who`: input 2: expected
/// a tensor, got ...".
std::vector<at::Tensor> check_tensor_list(lua_State* L, int index, const std::string& who);

/// Pushes each. A tensor that is given twice is one value, as it would be to a caller in Lua.
void push_tensors(lua_State* L, at::ArrayRef<at::Tensor> tensors);

}  // namespace triage::lua
