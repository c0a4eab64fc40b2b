#pragma once
#include <triage/graph.h>

#include <functional>
#include <string>
#include <vector>

namespace triage::graph {

/// Records what `fn` does with `inputs` one level below `trace`: in the place of an operator that is made of others
/// (`linear`) stands what it calls, down to those that have a derivative of their own; so too what autograd calls while
/// it runs backward. In-place writes to memory of the graph's own are recorded in their functional form.
///
/// `constants` may be used as constants of the graph; a tensor that comes from anywhere else is an error, since it may
/// be another one on the next call. Throws GraphError where what was done cannot stand in a graph.
Graph trace_primitives(const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& fn,
                       const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& constants,
                       std::string name);

/// The script line that calls recorded from now on come from, and whether they stay though nobody uses their results
/// (Node::checks), for the trace that runs on this thread.
void set_trace_source(const Source& source, bool checks = false);

}  // namespace triage::graph
