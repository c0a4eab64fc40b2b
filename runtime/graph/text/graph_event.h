#pragma once
#include <triage/graph.h>

#include <string_view>

namespace triage::graph {

/// Tells the trace a graph as it is at `stage` ("captured", "plain ATen", "forward", ...): its text, and where in the
/// script each node comes from. Nothing where the trace is off.
void trace_graph(const Graph& graph, std::string_view stage);

}  // namespace triage::graph
