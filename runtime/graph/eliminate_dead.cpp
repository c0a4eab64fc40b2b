#include <triage/graph.h>

#include <unordered_set>

#include "runtime/graph/uses.h"

namespace triage::graph {

void eliminate_dead(Graph& graph) {
  std::unordered_set<const Value*> used(graph.outputs().begin(), graph.outputs().end());
  auto& nodes = graph.nodes();
  std::vector<std::unique_ptr<Node>> kept;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    // A random operator moves the generator on: without it the ones after it would draw other numbers.
    bool needed = is_random((*node)->op) || is_effect((*node)->op) || writes((*node)->op) || (*node)->checks;
    for (const Value* result : (*node)->results) needed = needed || used.count(result);
    if (!needed) continue;
    for_each_use(**node, [&](Value*& value) { used.insert(value); });
    kept.push_back(std::move(*node));
  }
  nodes.clear();
  nodes.insert(nodes.end(), std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  graph.drop_unused_constants();
}

}  // namespace triage::graph
