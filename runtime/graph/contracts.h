#pragma once
#include <triage/graph.h>

namespace triage::graph {

/// Of a graph that is not trusted: throws GraphError at the first node whose operator has no contract
/// (docs/operators.md), or whose constants are out of it.
void check_contracts(const Graph& graph);

}  // namespace triage::graph
