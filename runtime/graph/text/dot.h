#pragma once
#include <triage/graph.h>

#include <string>

namespace triage::graph {

/// The graph as a diagram, in the language of Graphviz: inputs, calls and outputs, and what flows between them, with
/// types.
std::string dot_text(const Graph& graph);

}  // namespace triage::graph
