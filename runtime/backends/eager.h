#pragma once
#include <triage/backend.h>

namespace triage {

/// The `eager` backend: a graph compiled to a flat list of boxed ATen calls. Any device; autograd records as usual.
std::unique_ptr<Executable> compile_eager(const graph::Graph& graph, const std::vector<at::Tensor>& examples);

/// Whether a backend is this one.
bool is_eager(const Backend& backend);

/// The same, but for outputs that share memory with inputs and constants as its operators make them.
std::unique_ptr<Executable> compile_eager_as_it_is(const graph::Graph& graph);

}  // namespace triage
