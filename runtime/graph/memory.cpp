#include "runtime/graph/memory.h"

namespace triage::graph {
namespace {

size_t heap_bytes(const Operand& operand) {
  if (const c10::IValue* constant = operand.constant()) return graph::heap_bytes(*constant);
  const std::vector<Operand>* list = operand.list();
  if (!list) return 0;
  size_t bytes = graph::heap_bytes(*list);
  for (const Operand& item : *list) bytes += heap_bytes(item);
  return bytes;
}

size_t bytes_of(const Value& value) {
  return sizeof(Value) + graph::heap_bytes(value.name) + (value.meta ? graph::heap_bytes(value.meta->sizes) : 0);
}

size_t bytes_of(const Node& node) {
  size_t bytes = sizeof(Node) + graph::heap_bytes(node.operands) + graph::heap_bytes(node.results) +
                 graph::heap_bytes(node.source.file);
  for (const Operand& operand : node.operands) bytes += heap_bytes(operand);
  for (const Value* result : node.results) bytes += bytes_of(*result);
  return bytes;
}

}  // namespace

size_t heap_bytes(const c10::IValue& value) {
  if (value.isString()) return sizeof(c10::ivalue::ConstantString) + heap_bytes(value.toStringRef());
  if (!value.isList()) return 0;
  return value.toListRef().size() * sizeof(c10::IValue);
}

size_t bytes(const Graph& graph) {
  size_t bytes = sizeof(Graph) + heap_bytes(graph.name()) + heap_bytes(graph.inputs()) + heap_bytes(graph.constants()) +
                 heap_bytes(graph.nodes()) + heap_bytes(graph.outputs()) + heap_bytes(graph.output_names());
  for (const Input& input : graph.inputs()) bytes += bytes_of(*input.value);
  for (const std::string& name : graph.output_names()) bytes += heap_bytes(name);
  for (const auto& node : graph.nodes()) bytes += bytes_of(*node);
  for (const Constant& constant : graph.constants()) {
    bytes += bytes_of(*constant.value);
    if (!constant.variable && constant.tensor.defined() && constant.tensor.has_storage())
      bytes += constant.tensor.storage().nbytes();
  }
  return bytes;
}

}  // namespace triage::graph
