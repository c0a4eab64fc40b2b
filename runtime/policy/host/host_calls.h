#pragma once
#include <triage/front_end.h>
#include <triage/runtime.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/given/host_call.h"

namespace triage::policy {

using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// What is called belongs to the host: it draws no numbers of a policy, is not held to its limits, and is not captured.
/// Anything that is no std::exception becomes a PolicyError.
std::vector<at::Tensor> call_as_host(const std::string& name, const TensorFunction& fn,
                                     const std::vector<at::Tensor>& arguments);

/// A node of graphs. `callee.call` is called as the host's.
HostFunction node_function(given::Callee callee);
/// Throw InputError for what cannot be called.
HostFunction pure_function(const std::string& name, TensorFunction fn, FunctionOptions options);
HostFunction module_function(const std::string& name, const torch::jit::Module& module);

}  // namespace triage::policy
