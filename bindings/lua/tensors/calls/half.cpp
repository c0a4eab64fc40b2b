#include "bindings/lua/tensors/calls/half.h"

#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/lazy_tensor.h"
#include "runtime/capture/rules/arguments.h"
#include "runtime/capture/rules/params.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <triage/graph.h>

#include <algorithm>
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

/// Up to so many elements, stand-ins of empty tensors keep the sizes that are not 0.
constexpr int64_t most_elements = 1 << 16;

int64_t elements_of_stand_in(const at::Tensor& tensor) {
  double elements = 1;
  for (const int64_t size : tensor.sizes()) elements *= static_cast<double>(std::max<int64_t>(size, 1));
  return elements > static_cast<double>(most_elements) ? most_elements + 1 : static_cast<int64_t>(elements);
}

/// What kernels take without complaint: indices within bounds, rows that are chosen. Values that are not there yet have
/// none.
at::Tensor stand_in(const at::Tensor& tensor, bool one_element) {
  const bool has_values = tensor.numel() > 0 && !capture::LazyTensor::unfilled(tensor);
  if (has_values && (!one_element || tensor.dim() == 0)) return tensor;
  std::vector<int64_t> sizes = tensor.sizes().vec();
  for (int64_t& size : sizes) size = one_element ? 1 : std::max<int64_t>(size, 1);
  const bool index = at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
  return index ? at::zeros(sizes, tensor.scalar_type()) : at::ones(sizes, tensor.scalar_type());
}

c10::IValue with_stand_ins(const c10::IValue& value, bool one_element) {
  if (value.isTensor() && value.toTensor().defined()) return stand_in(value.toTensor(), one_element);
  if (!value.isList()) return value;
  c10::impl::GenericList list(value.toList().elementType());
  for (const c10::IValue& item : value.toListRef()) list.push_back(with_stand_ins(item, one_element));
  return list;
}

/// Nobody notices that the operator runs once more. One of another library might do more than its schema says.
bool can_be_tried(const c10::OperatorHandle& op) {
  return op.schema().name().rfind("aten::", 0) == 0 && !graph::writes(op) && !graph::is_random(op) &&
         !graph::is_effect(op);
}

/// A kernel that has no elements to compute does not say that it lacks float16; but the graph that is captured of the
/// call runs on full batches too. So the operator is asked with one row in the place of none.
bool lacks_kernel_when_full(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  bool empty = false, plain = true;
  int64_t elements = 0;
  for (const c10::IValue& argument : arguments)
    capture::for_each_tensor(argument, [&](const at::Tensor& tensor) {
      plain &= tensor.device().is_cpu() && tensor.layout() == at::kStrided;
      if (!plain || tensor.numel() > 0) return;
      empty = true;
      elements += elements_of_stand_in(tensor);
    });
  if (!empty || !plain || !can_be_tried(op)) return false;
  const at::NoGradGuard no_grad;
  const at::DisableRecordFunctionGuard unseen;
  torch::jit::Stack stack;
  try {
    for (const c10::IValue& argument : arguments) stack.push_back(with_stand_ins(argument, elements > most_elements));
    op.callBoxed(&stack);
  } catch (const c10::Error& error) {
    return lacks_kernel(error);
  } catch (const std::exception&) {  // the call itself says what is wrong with it
  }
  return false;
}

c10::IValue widened(const c10::IValue& value) {
  const auto wide = [](const at::Tensor& tensor) { return is_narrow(tensor) ? converted(tensor, at::kFloat) : tensor; };
  if (value.isTensor()) return wide(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> tensors;
  for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(wide(tensor));
  return tensors;
}

/// Whether the call would have float32 results without the widening too: it asks for a dtype, or mixes float16 with
/// float32.
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
  if (!lacks_kernel_when_full(op, arguments)) {
    try {
      return capture::call(op, stack);
    } catch (const c10::Error& error) {
      if (!lacks_kernel(error) || graph::writes(op)) throw;
    }
  }
  stack.clear();
  const auto* recorder = capture::Recorder::current();
  for (const c10::IValue& argument : arguments) stack.push_back(widened(argument));
  capture::read_params_unless_recorded(recorder, op, stack);
  capture::call(op, stack);
  if (gives_float32(op, arguments)) return;
  for (c10::IValue& result : stack)
    if (result.isTensor() && result.toTensor().defined() && result.toTensor().scalar_type() == at::kFloat)
      result = converted(result.toTensor(), at::kHalf);
}

}  // namespace triage::lua
