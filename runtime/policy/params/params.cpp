#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/error.h>
#include <triage/params.h>

#include <cmath>

#include "runtime/policy/params/param_values.h"

namespace triage {

ParamValue::ParamValue(const std::vector<int64_t>& numbers)
    : kind_(Kind::list), tensor_(at::tensor(numbers, at::kLong)) {}
ParamValue::ParamValue(const std::vector<double>& numbers)
    : kind_(Kind::list), tensor_(at::tensor(numbers, at::kDouble)) {}
ParamValue::ParamValue(at::Tensor tensor) : kind_(Kind::tensor), tensor_(std::move(tensor)) {}

const c10::Scalar& ParamValue::number() const {
  if (!is_number()) throw InputError("expected a number as the value of a param, got " + text());
  return number_;
}

std::string ParamValue::text() const {
  if (is_list()) return fmt::format("a list of {} numbers", tensor_.numel());
  if (is_number()) return policy::number_text(number_);
  if (!tensor_.defined()) return "an undefined tensor";
  return fmt::format("a tensor of {} {{{}}}", c10::toString(tensor_.scalar_type()), fmt::join(tensor_.sizes(), ", "));
}

namespace policy {

ParamValue as_set(const at::Tensor& param) {
  if (param.unsafeGetTensorImpl()->is_wrapped_number()) return param.item();
  return param;
}

std::string number_text(const c10::Scalar& number) {
  if (number.isBoolean()) return number.toBool() ? "true" : "false";
  if (number.isFloatingPoint()) return fmt::format("{}", number.toDouble());
  return number.isComplex() ? "a complex number" : fmt::format("{}", number.toLong());
}

const char* kind_of(const c10::IValue& value) {
  if (value.isBool()) return "a boolean";
  if (value.isTensor()) return "a tensor";
  if (value.isDoubleList()) return "a list of numbers";
  if (value.isIntList()) return "a list of integers";
  return value.isInt() ? "an integer" : "a number";
}

at::ScalarType dtype_of_elements(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().scalar_type();
  return value.isIntList() ? at::kLong : at::kFloat;
}

namespace {

bool is_number(const Param& param) { return !param.value.isTensor() && !param.value.isList(); }

/// `value` as the type that the param has: guards and type promotion depend on it. Nothing where it does not fit.
std::optional<c10::Scalar> fitting_number(const Param& param, const c10::Scalar& value) {
  if (param.value.isBool()) {
    if (value.isBoolean()) return value;
  } else if (param.value.isInt()) {
    if (value.isIntegral(/*includeBool=*/false)) return value;
    constexpr double limit = 9223372036854775808.0;  // 2^63
    const double number = value.isFloatingPoint() ? value.toDouble() : limit;
    if (number >= -limit && number < limit && number == std::trunc(number)) return static_cast<int64_t>(number);
  } else if (value.isIntegral(/*includeBool=*/false) || value.isFloatingPoint()) {
    return value.toDouble();
  }
  return std::nullopt;
}

at::Tensor default_tensor(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  const at::Tensor numbers =
      value.isIntList() ? ParamValue(value.toIntVector()).tensor() : ParamValue(value.toDoubleVector()).tensor();
  return numbers.to(dtype_of_elements(value));
}

/// A list takes lists, and 1-D tensors of its dtype; a tensor takes every dense tensor, and lists.
std::optional<at::Tensor> fitting_tensor(const Param& param, const ParamValue& value) {
  const at::Tensor& tensor = value.tensor();
  if (!tensor.defined() || tensor.layout() != at::kStrided) return std::nullopt;
  const bool to_list = param.value.isList();
  const at::ScalarType dtype = dtype_of_elements(param.value);
  if (!value.is_list())
    return !to_list || (tensor.dim() == 1 && tensor.scalar_type() == dtype) ? std::optional(tensor) : std::nullopt;
  if (at::isFloatingType(tensor.scalar_type()) && !at::isFloatingType(dtype)) {
    const bool whole =
        tensor.eq(tensor.trunc()).all().item<bool>() && tensor.abs().lt(9223372036854775808.0).all().item<bool>();
    if (!whole) return std::nullopt;
  }
  const at::Tensor converted = tensor.to(dtype);
  const bool keeps_all = at::isFloatingType(dtype) || converted.to(tensor.scalar_type()).equal(tensor);
  return keeps_all ? std::optional(converted) : std::nullopt;  // 300 is no uint8
}

at::Tensor wrapped_number(const c10::Scalar& value) {
  at::Tensor tensor = c10::scalar_to_tensor(value);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

}  // namespace

std::optional<at::Tensor> fitting(const Param& param, const ParamValue& value) {
  c10::InferenceMode off(false);  // a param made by a caller in inference mode must look the same to guards
  if (!is_number(param)) return fitting_tensor(param, value);
  const auto number = value.is_number() ? fitting_number(param, value.number()) : std::nullopt;
  return number ? std::optional(wrapped_number(*number)) : std::nullopt;
}

at::Tensor default_of(const Param& param) {
  c10::InferenceMode off(false);
  return is_number(param) ? wrapped_number(param.value.toScalar()) : default_tensor(param.value);
}

namespace {

/// Of a list, the first number that the param's elements cannot be: ", with 2.5 at index 1"; empty where there is none.
std::string misfit_element(const Param& param, const ParamValue& value) {
  if (!value.is_list() || is_number(param) || at::isFloatingType(dtype_of_elements(param.value))) return {};
  const at::Tensor numbers = value.tensor().to(at::kDouble);
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    const double number = numbers[i].item<double>();
    if (number != std::trunc(number) || !std::isfinite(number)) return fmt::format(", with {} at index {}", number, i);
  }
  return {};
}

}  // namespace

std::string misfit_text(const Param& param, const ParamValue& value) {
  const std::string range = range_text(param);
  return fmt::format("param '{}' is {}, and the given value is not: got {}{}{}{}", param.name, kind_of(param.value),
                     value.text(), misfit_element(param, value), range.empty() ? "" : "; it takes " + range,
                     param.help.empty() ? "" : fmt::format(" ({})", param.help));
}

at::Tensor checked(const std::string& policy, const Param& param, const ParamValue& value, Reading reading) {
  std::optional<at::Tensor> fits = fitting(param, value);
  if (!fits) throw InputError(fmt::format("policy '{}': {}", policy, misfit_text(param, value)));
  const std::string why = refusal(param, value, reading);
  if (!why.empty()) throw InputError(fmt::format("policy '{}': {}", policy, refusal_text(param, why)));
  return std::move(*fits);
}

}  // namespace policy
}  // namespace triage
