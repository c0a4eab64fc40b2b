#pragma once
#include <triage/graph.h>

#include <unordered_set>

/// The passes where gradients may flow through the graph.
namespace triage::graph {

using Values = std::unordered_set<const Value*>;

/// As those of triage/graph.h, for a graph that autograd will record: equal calls that make one of `differentiable`
/// stay apart. Each has a node of autograd of its own, whose saved tensors are freed by themselves, and gradients are
/// summed in the order of the nodes: one call in place of two gives other bits.
void eliminate_common(Graph& graph, const Values& differentiable);
void clean(Graph& graph, const Values& differentiable, bool fold = true);

}  // namespace triage::graph
