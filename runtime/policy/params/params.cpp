#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/error.h>
#include <triage/params.h>

#include "runtime/policy/host/param_values.h"

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
  if (is_number())
    return number_.isBoolean()         ? (number_.toBool() ? "true" : "false")
           : number_.isFloatingPoint() ? fmt::format("{}", number_.toDouble())
           : number_.isComplex()       ? "a complex number"
                                       : fmt::format("{}", number_.toLong());
  if (!tensor_.defined()) return "an undefined tensor";
  return fmt::format("a tensor of {} {{{}}}", c10::toString(tensor_.scalar_type()), fmt::join(tensor_.sizes(), ", "));
}

namespace policy {

ParamValue as_set(const at::Tensor& param) {
  if (param.unsafeGetTensorImpl()->is_wrapped_number()) return param.item();
  return param;
}

}  // namespace policy
}  // namespace triage
