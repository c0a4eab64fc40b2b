#include "runtime/graph/contracts.h"

#include <fmt/format.h>

#include "runtime/graph/argument_type.h"
#include "runtime/graph/describe.h"
#include "runtime/graph/evaluate.h"
#include "runtime/operators/contract.h"

namespace triage::graph {
namespace {

void check(const Graph& graph, const Node& node) {
  const auto& name = node.op.operator_name();
  const operators::Contract* contract = operators::find_contract(name.name, name.overload_name);
  if (!contract)
    throw GraphError(fmt::format("{}: `{}{}{}` is not among the operators of graphs that come as text or from a file; "
                                 "load it as trusted where whoever made it may run any code",
                                 describe(node), name.name, name.overload_name.empty() ? "" : ".", name.overload_name),
                     node.source);
  std::vector<c10::IValue> arguments;
  std::vector<bool> known;
  const auto& schema = node.op.schema();
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const Operand& operand = node.operands[i];
    const at::Tensor* tensor = operand.value() ? graph.constant_of(operand.value()) : nullptr;
    const ArgumentType type = type_of(schema.arguments()[i]);
    known.push_back(tensor || operand.constant());
    arguments.push_back(tensor               ? c10::IValue(*tensor)
                        : operand.constant() ? boxed_constant(*operand.constant(), type)
                                             : c10::IValue());
  }
  if (const auto wrong = operators::violation_of_constants(*contract, schema, arguments, known))
    throw GraphError(fmt::format("{}: {}", describe(node), *wrong), node.source);
}

}  // namespace

void check_contracts(const Graph& graph) {
  for (const auto& node : graph.nodes()) check(graph, *node);
}

}  // namespace triage::graph
