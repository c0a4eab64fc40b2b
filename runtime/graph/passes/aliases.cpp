#include "runtime/graph/passes/aliases.h"

#include <algorithm>

#include "runtime/graph/passes/uses.h"
#include "runtime/graph/verifier.h"
#include "runtime/operators/semantics.h"

namespace triage::graph {

using operators::Semantics, operators::semantics_of;

namespace {

bool is_read_only_alias(const c10::AliasInfo* info) { return info && !info->isWrite(); }

bool says_view(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(),
                     [](const c10::Argument& result) { return is_read_only_alias(result.alias_info()); });
}

}  // namespace

Sharing sharing(const c10::OperatorHandle& op) {
  if (semantics_of(op).has(Semantics::view_or_copy)) return Sharing::maybe;
  return says_view(op.schema()) ? Sharing::always : Sharing::none;
}

/// Dropout that draws has memory of its own, and else is its argument; a number that is no constant may turn it off.
Sharing sharing(const Node& node) {
  const Sharing of_any = sharing(node.op);
  if (of_any != Sharing::maybe || !is_random(node.op)) return of_any;
  if (!draws(node)) return Sharing::always;
  return node.operands[1].constant() && node.operands[2].constant() ? Sharing::none : Sharing::maybe;
}

bool repeats_elements(const Value* value) {
  for (; value && value->producer && sharing(*value->producer) == Sharing::always;
       value = value->producer->operands[0].value())
    if (semantics_of(value->producer->op).has(Semantics::repeats)) return true;
  return false;
}

bool may_share(const c10::OperatorHandle& op, size_t argument) {
  return !says_view(op.schema()) || is_read_only_alias(op.schema().arguments()[argument].alias_info());
}

void for_each_shared(const Node& node, const std::function<void(Value*)>& visit) {
  if (sharing(node) == Sharing::none) return;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    if (!may_share(node.op, i)) continue;
    Operand operand = node.operands[i];
    for_each_use(operand, [&](Value* value) { visit(value); });
  }
}

std::unordered_set<const Value*> seen_through_outputs(const Graph& graph) {
  std::unordered_set<const Value*> seen(graph.outputs().begin(), graph.outputs().end());
  const auto& nodes = graph.nodes();
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    const auto& results = (*node)->results;
    if (std::any_of(results.begin(), results.end(), [&](const Value* result) { return seen.count(result) != 0; }))
      for_each_shared(**node, [&](Value* value) { seen.insert(value); });
  }
  return seen;
}

void reshape_what_follows(Graph& graph, std::unordered_set<const Value*>& values) {
  const StaysValid valid(graph);
  static const auto op = [](const char* name) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, ""); };
  static const auto& reshapes =
      *new std::unordered_map<std::string, c10::OperatorHandle>{{"aten::view", op("aten::reshape")},
                                                                {"aten::_unsafe_view", op("aten::reshape")},
                                                                {"aten::view_as", op("aten::reshape_as")}};
  std::vector<NodePtr> nodes;
  nodes.swap(graph.nodes());
  for (auto& node : nodes) {
    bool follows = false;
    for_each_use(*node, [&](const Value* value) { follows |= values.count(value) != 0; });
    const auto& name = node->op.operator_name();
    if (follows) {
      values.insert(node->results.begin(), node->results.end());
      if (const auto found = reshapes.find(name.name); found != reshapes.end() && name.overload_name.empty())
        node->op = found->second;
      if (name == c10::OperatorName{"aten::view", "dtype"}) {  // elements of another size must lie side by side
        const Value* viewed = node->operands[0].value();
        const auto format = static_cast<int64_t>(at::MemoryFormat::Contiguous);
        Node* dense = graph.append(op("aten::contiguous"), {node->operands[0], c10::IValue(format)}, 1, node->source);
        graph.edit(dense->results[0]).meta = viewed->meta;
        node->operands[0] = dense->results[0];
      }
    }
    graph.nodes().push_back(std::move(node));
  }
}

OutputMemory::OutputMemory(const Graph& graph) {
  const std::unordered_set<const Value*> outputs(graph.outputs().begin(), graph.outputs().end());
  for (const Value* output : outputs)
    for (const Value* root : origin(output).roots) {
      Lookers& lookers = lookers_[root];
      ++lookers.outputs;
      lookers.maybe |= origin(output).maybe;
    }
}

const OutputMemory::MemoryOrigin& OutputMemory::origin(const Value* asked) {
  std::vector<const Value*> left{asked};
  while (!left.empty()) {
    const Value* const value = left.back();
    bool waits = false;
    if (!origins_.count(value) && is_view(value))
      for_each_shared(*value->producer, [&](Value* argument) {
        if (origins_.count(argument)) return;
        left.push_back(argument);
        waits = true;
      });
    if (waits) continue;
    left.pop_back();
    if (!origins_.count(value)) origins_[value] = origin_by_arguments(value);
  }
  return origins_.at(asked);
}

/// Those of the arguments that it shares memory with are known.
OutputMemory::MemoryOrigin OutputMemory::origin_by_arguments(const Value* value) const {
  MemoryOrigin found;
  if (!is_view(value)) {
    found.roots.push_back(value);
    return found;
  }
  found.maybe = sharing(*value->producer) == Sharing::maybe;
  std::unordered_set<const Value*> known;
  for_each_shared(*value->producer, [&](Value* argument) {
    const MemoryOrigin& from = origins_.at(argument);
    found.maybe |= from.maybe;
    for (const Value* root : from.roots)
      if (known.insert(root).second) found.roots.push_back(root);
  });
  return found;
}

const OutputMemory::Lookers* OutputMemory::lookers(const Value* root) const {
  const auto found = lookers_.find(root);
  return found == lookers_.end() ? nullptr : &found->second;
}

bool OutputMemory::depends_on_strides() const {
  return std::any_of(lookers_.begin(), lookers_.end(), [](const auto& known) {
    return known.first->producer && known.second.outputs > 1 && known.second.maybe;
  });
}

}  // namespace triage::graph
