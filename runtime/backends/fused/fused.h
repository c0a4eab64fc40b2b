#pragma once
#include <triage/backend.h>

namespace triage {

/// The `fused` backend: what can be computed row by row becomes loops in C++, compiled by the system's compiler in the
/// background; until that is done, and where there is no compiler, the interpreter serves. What is not fused stays a call of
/// ATen. CPU; with inputs that require grad, and on other devices, the whole graph is the interpreter's.
std::unique_ptr<Executable> compile_fused(const graph::Graph& graph, const std::vector<at::Tensor>& examples);

}  // namespace triage
