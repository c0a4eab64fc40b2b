#pragma once
#include <ATen/core/Tensor.h>

#include <lua.hpp>

#include <string>
#include <vector>

/// `torch.autograd.detect_anomaly`.
namespace triage::lua {

/// torch.autograd.detect_anomaly([options,] fn, ...) runs fn in it and returns what fn returns; without fn it gives a
/// scope.
int detect_anomaly(lua_State* L);

/// Before gradients flow from `outputs`: throws where a derivative on the way makes a NaN or Inf, if anomalies are
/// detected now. `gradients`: of the outputs, or none. `what`: the function that was called.
void check_gradients(lua_State* L, const std::string& what, const std::vector<at::Tensor>& outputs,
                     const std::vector<at::Tensor>& gradients);

}  // namespace triage::lua
