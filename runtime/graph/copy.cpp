#include "runtime/graph/copy.h"

#include "runtime/graph/uses.h"

namespace triage::graph {

void copy_facts(const Value& from, Value& to) {
  to.meta = from.meta;
  to.is_flags = from.is_flags;
}

Value* copy_input(Graph& into, const Input& input, Copies& copies) {
  Value* copy = into.add_input(input.value->name, input.kind, input.value->meta);
  copy->is_flags = input.value->is_flags;
  return copies[input.value] = copy;
}

Value* copy_constant(Graph& into, const Constant& constant, Copies& copies) {
  Value* copy = constant.variable ? into.add_variable(constant.tensor, constant.value->name)
                                  : into.add_constant(constant.tensor, constant.value->name);
  copy->is_flags = constant.value->is_flags;
  return copies[constant.value] = copy;
}

Node* copy_node(Graph& into, const Node& node, Copies& copies) {
  std::vector<Operand> operands = node.operands;
  for (Operand& operand : operands) for_each_use(operand, [&](Value*& value) { value = copies.at(value); });
  Node* twin = into.append(node.op, std::move(operands), node.results.size(), node.source);
  twin->checks = node.checks;
  for (size_t i = 0; i < node.results.size(); ++i) {
    copy_facts(*node.results[i], *twin->results[i]);
    copies[node.results[i]] = twin->results[i];
  }
  return twin;
}

}  // namespace triage::graph
