#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <vector>

/// The arguments of operators, as their callers stack them.
namespace triage::capture {

/// The last values of the stack: those of the call.
inline std::vector<c10::IValue> arguments_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const size_t count = op.schema().arguments().size();
  return {stack.end() - static_cast<std::ptrdiff_t>(count), stack.end()};
}

/// Calls `visit` with every defined tensor in `value`, those of lists included.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) for_each_tensor(item, visit);
  }
}
template <typename Visit>
void for_each_tensor(const std::vector<c10::IValue>& values, const Visit& visit) {
  for (const c10::IValue& value : values) for_each_tensor(value, visit);
}

/// All that for_each_tensor visits.
inline std::vector<at::Tensor> tensors_of(const std::vector<c10::IValue>& arguments) {
  std::vector<at::Tensor> tensors;
  for_each_tensor(arguments, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

/// Which one of these `tensor` is.
inline std::optional<uint32_t> index_among(const std::vector<c10::IValue>& arguments, const at::Tensor& tensor) {
  const std::vector<at::Tensor> tensors = tensors_of(arguments);
  for (uint32_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].is_same(tensor)) return i;
  return std::nullopt;
}

/// A number of the script in the place of a tensor: it takes part in type promotion as a number.
inline bool is_wrapped_number(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); }

/// What graphs hold of it: the number, which the interpreter wraps again.
inline c10::IValue number_of(const at::Tensor& wrapped) {
  if (wrapped.scalar_type() == at::kBool) return wrapped.item().toBool();
  if (at::isComplexType(wrapped.scalar_type())) return wrapped.item().toComplexDouble();
  if (at::isIntegralType(wrapped.scalar_type(), /*includeBool=*/false)) return wrapped.item().toLong();
  return wrapped.item().toDouble();
}

}  // namespace triage::capture
