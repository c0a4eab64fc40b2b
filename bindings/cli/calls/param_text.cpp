#include "bindings/cli/calls/param_text.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/policy/params/param_values.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

/// A number, a list in full, or a tensor: its form, and its values if it is small.
std::string value_text(const c10::IValue& value) {
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isInt()) return fmt::format("{}", value.toInt());
  if (value.isDouble()) return fmt::format("{}", value.toDouble());
  if (value.isIntList()) return fmt::format("{{{}}}", fmt::join(value.toIntVector(), ", "));
  if (value.isDoubleList()) return fmt::format("{{{}}}", fmt::join(value.toDoubleVector(), ", "));
  constexpr int64_t most = 64;
  const at::Tensor& tensor = value.toTensor();
  std::string text = fmt::format("{} {{{}}}", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
  if (tensor.numel() > most) return text;
  const at::Tensor flat = tensor.to(at::kCPU, at::kDouble).flatten();
  for (int64_t i = 0; i < flat.numel(); ++i) text += fmt::format("{}{}", i ? ", " : ": ", flat[i].item<double>());
  return text;
}

/// JSON has no NaN and no Inf.
Json number_json(const c10::Scalar& number) {
  if (!number.isFloatingPoint()) return number.toLong();
  return std::isfinite(number.toDouble()) ? Json(number.toDouble()) : Json(policy::number_text(number));
}

template <class Numbers>
Json list_json(const Numbers& numbers) {
  Json list = Json::array();
  for (const auto& number : numbers) list.push_back(number_json(number));
  return list;
}

Json default_json(const c10::IValue& value) {
  if (value.isBool()) return value.toBool();
  if (value.isIntList()) return list_json(value.toIntVector());
  if (value.isDoubleList()) return list_json(value.toDoubleVector());
  return value.isTensor() ? Json(value_text(value)) : number_json(value.toScalar());
}

}  // namespace

std::string param_text(const Param& param) {
  const std::string range = policy::range_text(param);
  return value_text(param.value) + (range.empty() ? "" : ", " + range) + (param.help.empty() ? "" : ": " + param.help);
}

Json to_json(const Param& param) {
  return {{"default", default_json(param.value)},
          {"min", param.min ? number_json(*param.min) : Json()},
          {"max", param.max ? number_json(*param.max) : Json()},
          {"values", list_json(param.values)},
          {"finite", param.finite},
          {"help", param.help}};
}

}  // namespace triage::cli
