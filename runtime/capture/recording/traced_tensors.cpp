#include "runtime/capture/recording/traced_tensors.h"

#include "runtime/capture/rules/arguments.h"
#include "runtime/capture/tensors/twin.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/assert.h"

#include <algorithm>

namespace triage::capture {
namespace {

graph::TensorMeta meta_of(const at::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.sizes().vec(), tensor.device()};
}

/// The script may hand out what it made, to whoever writes to it: the graph keeps its own.
at::Tensor copy_of_literal(const at::Tensor& literal) {
  at::Tensor copy = literal.detach().clone();
  if (is_wrapped_number(literal)) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return literal.requires_grad() ? copy.set_requires_grad(true) : copy;
}

}  // namespace

at::Tensor TracedTensors::add_input(const std::string& name, graph::InputKind kind, const at::Tensor& tensor) {
  at::Tensor traced = tensor;
  if (kind == graph::InputKind::tensor) {
    traced = twin_of(tensor);
  } else {  // a param stays a wrapped number, and gets an identity of its own
    traced = tensor.clone();
    traced.unsafeGetTensorImpl()->set_wrapped_number(is_wrapped_number(tensor));
  }
  Traced& entry = enter(traced, graph_.add_input(name, kind, meta_of(tensor)));
  if (kind == graph::InputKind::tensor) entry.original.emplace(tensor);
  entry.is_input = true;
  entry.is_param = kind == graph::InputKind::param;
  inputs_.push_back(tensor);
  return traced;
}

void TracedTensors::rebind(const at::Tensor& tensor, graph::Value* value) {
  traced_[tensor.unsafeGetTensorImpl()].value = value;
  impls_[value] = tensor.unsafeGetTensorImpl();
}

TracedTensors::Traced& TracedTensors::enter(const at::Tensor& tensor, graph::Value* value) {
  rebind(tensor, value);
  Traced& entry = traced_[tensor.unsafeGetTensorImpl()];
  entry.identity.emplace(tensor);
  return entry;
}

at::Tensor TracedTensors::tensor_of(const graph::Value* value) const {
  const auto impl = impls_.find(value);
  const auto found = impl == impls_.end() ? traced_.end() : traced_.find(impl->second);
  return found != traced_.end() && found->second.value == value ? found->second.identity->tensor() : at::Tensor();
}

bool TracedTensors::shares_memory(const at::Tensor& tensor) const {
  for (const auto& [impl, entry] : traced_)
    if (impl != tensor.unsafeGetTensorImpl() && entry.identity->shared_memory_with(tensor)) return true;
  if (triage::shares_memory(tensor, inputs_)) return true;
  const auto& constants = graph_.constants();
  return std::any_of(constants.begin(), constants.end(),
                     [&](const graph::Constant& constant) { return share_memory(constant.tensor, tensor); });
}

void TracedTensors::call_with_originals(const c10::OperatorHandle& op, torch::jit::Stack& stack) const {
  const auto original = [this](const at::Tensor& tensor) {
    const at::Tensor found = this->original(tensor);
    return found.defined() ? found : tensor;
  };
  for (c10::IValue& value : stack) {
    if (value.isTensor() && value.toTensor().defined()) {
      value = original(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> tensors = value.toTensorList().copy();
      for (size_t i = 0; i < tensors.size(); ++i) tensors.set(i, original(tensors.get(i)));
      value = tensors;
    }
  }
  op.callBoxed(&stack);
}

void TracedTensors::bind(at::Tensor& tensor, graph::Value* value, int branch) {
  // Values are told apart by the identity of their tensors. An operator that hands back an argument as it is (`to`,
  // `contiguous`) would give one identity to two values, which differ when replayed on other strides.
  std::optional<TensorIdentity> original;
  if (knows(tensor)) {
    const at::Tensor known = this->original(tensor);
    original.emplace(known.defined() ? known : tensor);
    tensor = twin_of(tensor);
  }
  TRIAGE_ASSERT(!knows(tensor));  // two values behind one tensor would be taken for each other
  graph_.edit(value).meta = meta_of(tensor);
  Traced& entry = enter(tensor, value);
  entry.original = std::move(original);
  entry.branch = branch;
}

graph::Value* TracedTensors::value_of(const at::Tensor& tensor) {
  if (const Traced* found = trace(tensor)) return found->value;
  // No result of the capture: the graph holds the tensor itself.
  Traced& entry =
      enter(tensor, is_literal(tensor) ? graph_.add_constant(copy_of_literal(tensor)) : graph_.add_variable(tensor));
  entry.branch = -1;
  return entry.value;
}

graph::Operand TracedTensors::operand_of(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return c10::IValue();
    if (is_wrapped_number(tensor) && !knows(tensor)) return number_of(tensor);
    return value_of(tensor);
  }
  if (value.isTensorList() || (value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList())) {
    std::vector<graph::Operand> items;
    for (const c10::IValue& item : value.toListRef()) items.push_back(operand_of(item));
    return items;
  }
  return value;
}

}  // namespace triage::capture
