#include "runtime/capture/sizes/integer_division.h"

#include <ATen/ATen.h>

#include <string>

#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/rules/rules.h"
#include "runtime/operators/division.h"
#include "runtime/operators/semantics.h"

namespace triage::capture {
namespace {

bool is_whole(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor().defined() && at::isIntegralType(value.toTensor().scalar_type(), true)
                          : value.isInt();
}

at::Tensor apply(const char* name, const char* overload, torch::jit::Stack arguments) {
  call(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload), arguments);
  return arguments.at(0).toTensor();
}

at::Tensor as_dtype(const at::Tensor& tensor, at::ScalarType dtype) {
  if (tensor.scalar_type() == dtype) return tensor;
  return apply("aten::to", "dtype", {tensor, dtype, false, false, c10::IValue()});
}

/// What dividing by -1 gives.
at::Tensor by_minus_one(const at::Tensor& self, bool quotient) {
  if (quotient) return apply("aten::neg", "", {self});
  return apply("aten::zeros_like", "",
               {self, c10::IValue(), c10::IValue(), c10::IValue(), c10::IValue(), c10::IValue()});
}

/// The quotient or remainder of two tensors of one signed dtype, of which no divisor meets the kernel as -1.
at::Tensor divided(const c10::OperatorHandle& op, torch::jit::Stack arguments, const at::Tensor& self,
                   const at::Tensor& other, bool quotient) {
  const at::Tensor minus = apply("aten::eq", "Scalar", {other, -1});
  arguments[0] = self;
  arguments[1] = apply("aten::masked_fill", "Scalar", {other, minus, 1});
  call_plainly(op, arguments);
  const at::Tensor safe = arguments.at(0).toTensor();
  return apply("aten::where", "self",
               {minus, apply("aten::expand_as", "", {by_minus_one(self, quotient), safe}), safe});
}

/// The form of `op` that takes two tensors and returns its result.
c10::OperatorHandle of_tensors(const c10::OperatorHandle& op) {
  std::string name = base_name(op), overload = op.operator_name().overload_name;
  if (name.back() == '_') name.pop_back();
  if (name == "floor_divide") overload = "";
  if (overload == "Scalar" || overload == "Scalar_Tensor") overload = "Tensor";
  if (overload == "Scalar_mode") overload = "Tensor_mode";
  return c10::Dispatcher::singleton().findSchemaOrThrow(("aten::" + name).c_str(), overload.c_str());
}

}  // namespace

bool divide_integers(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const operators::Semantics& does = operators::semantics_of(op);
  if (!does.has(operators::Semantics::quotient | operators::Semantics::modulus)) return false;
  const bool quotient = does.has(operators::Semantics::quotient);
  const size_t first = stack.size() - op.schema().arguments().size();
  const c10::IValue self = stack[first], other = stack[first + 1];
  if (!is_whole(self) || !is_whole(other)) return false;
  const bool has_mode = op.operator_name().overload_name.find("_mode") != std::string::npos;
  if (has_mode && stack[first + 2].isNone()) return false;  // divides as floats
  const at::ScalarType dtype = operators::dtype_of_division(op.schema(), self, other);
  if (dtype == at::kBool || dtype == at::kByte) return false;  // without a -1
  if (other.isInt() && !operators::is_minus_one(other.toInt(), dtype)) return false;

  const torch::jit::Stack arguments(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end());
  const at::Tensor number = self.isTensor() ? as_dtype(self.toTensor(), dtype)
                                            : apply("aten::full_like", "",
                                                    {as_dtype(other.toTensor(), dtype), self, c10::IValue(),
                                                     c10::IValue(), c10::IValue(), c10::IValue(), c10::IValue()});
  const at::Tensor result =
      other.isInt() ? by_minus_one(number, quotient)
                    : divided(of_tensors(op), arguments, number, as_dtype(other.toTensor(), dtype), quotient);
  stack.resize(first);
  if (base_name(op).back() != '_') {
    stack.emplace_back(result);
  } else {
    if (result.sizes() != self.toTensor().sizes())
      throw Error("`" + base_name(op) + "`: the result does not have the shape of the tensor that it is written to");
    stack.emplace_back(apply("aten::copy_", "", {self, result, false}));
  }
  return true;
}

}  // namespace triage::capture
