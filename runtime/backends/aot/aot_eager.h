#pragma once
#include <triage/backend.h>

namespace triage {

/// The `aot_eager` backend. Where no gradient is asked for it is `eager`. Where one is, the graph's forward and
/// backward computation are recorded as one graph when the first gradient comes in, cleaned, cut in two, and run by the
/// interpreter from then on: the gradients of `eager`, bit for bit, except that masked rows leave no NaN in them
/// (mask_rows). Records once for each layout of inputs and incoming gradients (sizes, strides). On the CPU; what it
/// cannot do it leaves to `eager`, and says so once in the log.
std::unique_ptr<Executable> compile_aot_eager(const graph::Graph& graph, const std::vector<at::Tensor>& examples);

/// The same for another backend, `name`: `half` compiles the two halves, and the graph by itself for calls whose
/// backward run nobody has asked for yet. What it makes runs with grad mode off.
std::unique_ptr<Executable> compile_joint(const graph::Graph& graph, const std::vector<at::Tensor>& examples,
                                          const std::string& name, const Backend& half);

}  // namespace triage
