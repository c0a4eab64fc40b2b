#include "bindings/lua/tensors/half.h"

#include "runtime/capture/arguments.h"
#include "runtime/capture/recorder.h"

#include <triage/graph.h>

#include <cstring>

namespace triage::lua {
namespace {

at::Tensor converted(const at::Tensor& tensor, at::ScalarType dtype) {
  static const auto to = c10::Dispatcher::singleton().findSchemaOrThrow("aten::to", "dtype");
  torch::jit::Stack stack = {tensor, dtype, false, false, c10::IValue()};
  capture::call(to, stack);
  return stack.at(0).toTensor();
}

bool is_narrow(const at::Tensor& tensor) {
  return tensor.defined() && tensor.scalar_type() == at::kHalf && tensor.device().is_cpu();
}

bool any_narrow(const torch::jit::Stack& stack) {
  bool any = false;
  for (const c10::IValue& value : stack)
    capture::for_each_tensor(value, [&](const at::Tensor& tensor) { any |= is_narrow(tensor); });
  return any;
}

/// There is no list of the kernels that a LibTorch has; its error names the dtype that one lacks.
bool lacks_kernel(const c10::Error& error) {
  return std::strstr(error.what_without_backtrace(), "not implemented for 'Half'") != nullptr;
}

c10::IValue widened(const c10::IValue& value) {
  const auto wide = [](const at::Tensor& tensor) { return is_narrow(tensor) ? converted(tensor, at::kFloat) : tensor; };
  if (value.isTensor()) return wide(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> tensors;
  for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(wide(tensor));
  return tensors;
}

/// Whether the call would have float32 results without the widening too: it asks for a dtype, or mixes float16 with float32.
bool gives_float32(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (op.schema().arguments()[i].name() == "dtype" && !arguments[i].isNone()) return true;
    bool mixed = false;
    capture::for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      mixed |= tensor.defined() && tensor.scalar_type() == at::kFloat && tensor.dim() > 0;
    });
    if (mixed) return true;
  }
  return false;
}

}  // namespace

void call_at_any_width(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (!any_narrow(stack)) return capture::call(op, stack);
  const torch::jit::Stack arguments = stack;
  try {
    return capture::call(op, stack);
  } catch (const c10::Error& error) {
    if (!lacks_kernel(error) || graph::writes(op)) throw;
  }
  stack.clear();
  for (const c10::IValue& argument : arguments) stack.push_back(widened(argument));
  capture::call(op, stack);
  if (gives_float32(op, arguments)) return;
  for (c10::IValue& result : stack)
    if (result.isTensor() && result.toTensor().defined() && result.toTensor().scalar_type() == at::kFloat)
      result = converted(result.toTensor(), at::kHalf);
}

}  // namespace triage::lua
