#pragma once
#include <triage/graph.h>

/// Normalisations that train: they write to running statistics, which their schemas do not say.
namespace triage::graph {

/// The first call of the graph that does; null where there is none.
const Node* find_statistics(const Graph& graph);

}  // namespace triage::graph
