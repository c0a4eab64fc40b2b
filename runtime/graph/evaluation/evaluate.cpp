#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/compat/readable_memory.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "runtime/graph/argument_type.h"
#include "runtime/graph/text/describe.h"
#include "runtime/messages/assert.h"
#include "runtime/operators/untrusted.h"

namespace triage::graph {
namespace {

c10::IValue boxed_item(const Operand& operand, const ArgumentType& type, const Lookup& lookup) {
  if (const Value* value = operand.value()) {
    at::Tensor tensor = lookup(value);
    return type.kind == Kind::tensor ? c10::IValue(std::move(tensor)) : read_number(tensor, type.kind);
  }
  return boxed_constant(*operand.constant(), type);
}

c10::IValue boxed(const Operand& operand, const ArgumentType& type, const Lookup& lookup) {
  const auto* items = operand.list();
  if (!items) return boxed_item(operand, type, lookup);
  c10::impl::GenericList list(type.element);
  for (const auto& item : *items) list.push_back(boxed_item(item, type, lookup));
  return c10::IValue(std::move(list));
}

}  // namespace

c10::IValue read_number(const at::Tensor& tensor, Kind kind) {
  if (tensor.numel() != 1)
    throw InputError(fmt::format("expected a number, got a tensor of shape [{}]; pass a tensor with one element",
                                 fmt::join(tensor.sizes(), ", ")));
  // Params are such tensors: read them without the way through the dispatcher.
  const void* const plain = tensor.is_cpu() ? compat::readable_memory(tensor) : nullptr;
  at::Scalar number;
  if (plain && tensor.scalar_type() == at::kDouble)
    number = *static_cast<const double*>(plain);
  else if (plain && tensor.scalar_type() == at::kLong)
    number = *static_cast<const int64_t*>(plain);
  else
    number = tensor.item();
  switch (kind) {
    case Kind::integer:
      return number.toLong();
    case Kind::real:
      return number.toDouble();
    case Kind::boolean:
      return number.toBool();
    default:
      return number;
  }
}

c10::IValue boxed_constant(const c10::IValue& constant, const ArgumentType& type) {
  if (type.kind != Kind::tensor || constant.isTensor()) return constant;
  if (constant.isNone()) return type.optional || type.optional_items ? c10::IValue() : c10::IValue(at::Tensor());
  if (constant.isList()) {
    c10::impl::GenericList list(type.element);
    for (const c10::IValue& item : constant.toListRef()) list.push_back(boxed_constant(item, type));
    return c10::IValue(std::move(list));
  }
  at::Tensor tensor = c10::scalar_to_tensor(constant.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

std::vector<c10::IValue> boxed_arguments(const Node& node, const Lookup& lookup) {
  std::vector<c10::IValue> arguments;
  const auto& schema = node.op.schema().arguments();
  TRIAGE_ASSERT(node.operands.size() == schema.size());  // of a verified graph
  for (size_t i = 0; i < schema.size(); ++i) arguments.push_back(boxed(node.operands[i], type_of(schema[i]), lookup));
  return arguments;
}

std::vector<at::Tensor> flattened(const std::vector<c10::IValue>& results) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& result : results) {
    if (!result.isList()) {
      tensors.push_back(result.toTensor());
    } else {
      for (const c10::IValue& item : result.toListRef()) tensors.push_back(item.toTensor());
    }
  }
  return tensors;
}

std::vector<at::Tensor> evaluate(const Node& node, const Lookup& lookup) {
  std::vector<c10::IValue> stack = boxed_arguments(node, lookup);
  if (const auto* terms = operators::Untrusted::current(); terms && !terms->captured) {  // nothing has run it before
    const auto& name = node.op.operator_name();
    const operators::Contract* contract = operators::find_contract(name.name, name.overload_name);
    const auto wrong = contract ? operators::refusal(*contract, node.op.schema(), stack, *terms) : std::nullopt;
    if (wrong) throw GraphError(fmt::format("{}: {}", describe(node), *wrong), node.source);
  }
  node.op.callBoxed(&stack);
  return flattened(stack);
}

}  // namespace triage::graph
