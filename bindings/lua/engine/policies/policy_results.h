#pragma once
#include "bindings/lua/engine/policies/policy_table.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace triage::lua {

/// What the function of the policy returned, from `first` to the top of the stack: its outputs, then the new state.
/// Throws PolicyError, with the line of the function, where these are not the tensors that the policy names.
std::vector<at::Tensor> read_results(lua_State* L, int first, const PolicyDefinition& policy);

/// What a value is, in few words: "nil", "a string", "an IF without ELSE".
std::string described(lua_State* L, int index);

}  // namespace triage::lua
