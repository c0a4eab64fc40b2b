#include "runtime/graph/clean.h"

#include <utility>

namespace triage::graph {

void clean(Graph& graph, const Values& differentiable) {
  // Folding makes equal constants, merging those makes equal calls, which may fold again. No pass adds a node.
  std::pair<size_t, size_t> before, after{graph.nodes().size(), graph.constants().size()};
  do {
    before = after;
    fold_constants(graph);
    eliminate_common(graph, differentiable);
    eliminate_dead(graph);
    after = {graph.nodes().size(), graph.constants().size()};
  } while (after != before);
  verify(graph);
}

void clean(Graph& graph) { clean(graph, {}); }

}  // namespace triage::graph
