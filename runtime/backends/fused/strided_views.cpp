#include "runtime/backends/fused/strided_views.h"

#include <algorithm>
#include <string>

#include "runtime/backends/fused/lowering/lowering.h"
#include "runtime/graph/passes/aliases.h"
#include "runtime/operators/semantics.h"

namespace triage::fused {
namespace {

using graph::Node;
using graph::Value;
using operators::Semantics, operators::semantics_of;

/// A view in other sizes, of what has more than one dim: one dim can be split whatever its stride is.
bool raises_by_strides(const Node& node) {
  const std::string op = graph::op_name(node.op);
  const Value* const viewed = node.operands.at(0).value();
  const bool has_one_dim = viewed && viewed->meta && viewed->meta->sizes.size() <= 1;
  return ((op == "aten::view" || op == "aten::view_as") && !has_one_dim) || op == "aten::view.dtype" ||
         op == "aten::view_as_complex";
}

/// Whether the result may be an argument's memory, looked at in another way.
bool views(const Node& node) {
  if (graph::sharing(node) == graph::Sharing::none) return false;
  const Value* const viewed = node.operands.at(0).value();
  const auto& made = node.results.at(0)->meta;
  const bool converts = semantics_of(node.op).has(Semantics::view_or_copy) && viewed && viewed->meta && made &&
                        viewed->meta->dtype != made->dtype;
  return !converts;
}

/// Views that may have gaps in memory, or repeat elements. What is computed has neither, by loops and by ATen.
std::unordered_set<const Node*> gapped(const graph::Graph& graph) {
  std::unordered_set<const Node*> found;
  for (const auto& node : graph.nodes()) {
    if (!views(*node)) continue;
    const Value* const viewed = node->operands.at(0).value();
    const bool leaves_out = !can_lower(graph::op_name(node->op));  // `narrow`, `select`, `split`
    const bool inherits = !viewed || !viewed->producer || found.count(viewed->producer);
    if (inherits || leaves_out || semantics_of(node->op).has(Semantics::repeats)) found.insert(node.get());
  }
  return found;
}

}  // namespace

std::unordered_set<const Node*> strided_views(const graph::Graph& graph) {
  const auto& nodes = graph.nodes();
  if (std::none_of(nodes.begin(), nodes.end(), [](const auto& node) { return raises_by_strides(*node); })) return {};
  const std::unordered_set<const Node*> with_gaps = gapped(graph);
  std::unordered_set<const Node*> made_by_aten;
  for (const auto& node : nodes) {
    if (!raises_by_strides(*node)) continue;
    for (const Value* viewed = node->operands.at(0).value(); viewed && viewed->producer;) {
      const Node* const view = viewed->producer;
      if (!with_gaps.count(view) || !made_by_aten.insert(view).second) break;
      viewed = view->operands.at(0).value();
    }
  }
  return made_by_aten;
}

}  // namespace triage::fused
