// What a param allows beyond its type.
#include <ATen/ATen.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/compat/readable_memory.h"
#include "runtime/policy/params/param_values.h"

namespace triage::policy {
namespace {

bool is_whole(const c10::Scalar& number) { return number.isIntegral(/*includeBool=*/true); }

/// The number as a tensor of that dtype holds it: 0.1 is more in float32 than in float64.
double held(double number, at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return static_cast<float>(number);
    case at::kHalf:
      return static_cast<float>(at::Half(static_cast<float>(number)));
    case at::kBFloat16:
      return static_cast<float>(at::BFloat16(static_cast<float>(number)));
    default:
      return number;
  }
}

/// What a param allows of numbers of type T, int64_t or double, that stand in a tensor of dtype `of` and become one of
/// dtype `to`.
template <class T>
class Allowed {
 public:
  Allowed(const Param& param, at::ScalarType of, at::ScalarType to) : param_(param), of_(of), to_(to) {
    if (param.min) low_ = as_number(*param.min);
    if (param.max) high_ = as_number(*param.max);
  }
  bool contains(T number) const {
    if (param_.finite && !std::isfinite(held(static_cast<double>(number), to_))) return false;
    if (!param_.values.empty())
      return std::any_of(param_.values.begin(), param_.values.end(),
                         [&](const c10::Scalar& value) { return number == as_number(value); });
    const bool bounded = param_.min || param_.max;
    return !bounded || (number >= low_ && number <= high_);
  }

 private:
  T as_number(const c10::Scalar& number) const {
    if constexpr (std::is_same_v<T, int64_t>)
      return number.toLong();
    else
      return held(number.toDouble(), of_);
  }

  const Param& param_;
  const at::ScalarType of_, to_;
  T low_ = std::is_same_v<T, double> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::min();
  T high_ = std::is_same_v<T, double> ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
};

bool has_whole_bounds(const Param& param) {
  return (!param.min || is_whole(*param.min)) && (!param.max || is_whole(*param.max)) &&
         std::all_of(param.values.begin(), param.values.end(), is_whole);
}

bool has_bounds(const Param& param) { return param.min || param.max || !param.values.empty(); }

std::string texts_of(const std::vector<c10::Scalar>& numbers) {
  std::vector<std::string> texts;
  for (const c10::Scalar& number : numbers) texts.push_back(number_text(number));
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// "must lie between 0 and 100", of a number that does not.
std::string rule(const Param& param, double number) {
  if (param.finite && !std::isfinite(number)) return "must be a finite number";
  if (!param.values.empty()) return "must be one of " + texts_of(param.values);
  if (param.min && param.max)
    return fmt::format("must lie between {} and {}", number_text(*param.min), number_text(*param.max));
  return param.min ? "must be at least " + number_text(*param.min) : "must be at most " + number_text(*param.max);
}

std::string refusal_of_number(const Param& param, const c10::Scalar& number) {
  if (number.isBoolean()) return {};
  const bool whole = is_whole(number) && has_whole_bounds(param);
  const bool allowed = whole ? Allowed<int64_t>(param, at::kLong, at::kLong).contains(number.toLong())
                             : Allowed<double>(param, at::kDouble, at::kDouble).contains(number.toDouble());
  return allowed ? std::string() : fmt::format("{}, got {}", rule(param, number.toDouble()), number_text(number));
}

/// Where the element with that number stands: "index 2", "index (0, 2)".
std::string place_of(int64_t element, at::IntArrayRef sizes) {
  std::vector<int64_t> place(sizes.size());
  for (size_t dim = sizes.size(); dim-- > 0; element /= sizes[dim]) place[dim] = element % sizes[dim];
  if (place.size() == 1) return fmt::format("index {}", place[0]);
  return fmt::format("index ({})", fmt::join(place, ", "));
}

/// Of elements that lie in the memory of `tensor` one after the other.
template <class T>
std::string refusal_of_elements(const Param& param, const at::Tensor& tensor, at::ScalarType of, at::ScalarType to) {
  const Allowed<T> allowed(param, of, to);
  const T* const elements = tensor.data_ptr<T>();
  const T* const end = elements + tensor.numel();
  const T* const bad = std::find_if(elements, end, [&](T number) { return !allowed.contains(number); });
  if (bad == end) return {};
  const auto number = static_cast<double>(*bad);
  const std::string shown = std::is_same_v<T, int64_t> ? number_text(static_cast<int64_t>(*bad))
                            : of == at::kDouble        ? number_text(number)
                                                       : fmt::format("{}", static_cast<float>(number));
  return fmt::format("{}, got {} at {}", rule(param, held(number, to)), shown,
                     place_of(bad - elements, tensor.sizes()));
}

/// LibTorch computes with tensors that have no memory, or another kind of elements.
bool has_elements(const at::Tensor& tensor) {
  return !tensor.is_meta() && compat::has_only(tensor, compat::captured_keys) && !compat::lacks_memory(tensor);
}

std::string refusal_of_tensor(const Param& param, const ParamValue& value, Reading reading) {
  const at::Tensor& tensor = value.tensor();
  const at::ScalarType dtype = tensor.scalar_type();
  const bool is_real = at::isFloatingType(dtype) || at::isIntegralType(dtype, /*includeBool=*/true);
  if (!is_real) return has_bounds(param) ? fmt::format("must hold real numbers, got {}", value.text()) : std::string();
  if (!has_bounds(param) && !(param.finite && at::isFloatingType(dtype))) return {};
  const bool is_small = tensor.is_cpu() && tensor.numel() <= most_read_in_calls;
  if ((!value.is_list() && reading == Reading::small && !is_small) || !has_elements(tensor)) return {};
  const bool whole = !at::isFloatingType(dtype) && has_whole_bounds(param);
  const at::Tensor elements = tensor.detach().to(at::kCPU, whole ? at::kLong : at::kDouble).contiguous();
  if (whole) return refusal_of_elements<int64_t>(param, elements, dtype, dtype);
  return refusal_of_elements<double>(param, elements, dtype, value.is_list() ? dtype_of_elements(param.value) : dtype);
}

}  // namespace

std::string refusal(const Param& param, const ParamValue& value, Reading reading) {
  return value.is_number() ? refusal_of_number(param, value.number()) : refusal_of_tensor(param, value, reading);
}

std::string refusal_text(const Param& param, const std::string& refusal) {
  const bool of_elements = param.value.isTensor() || param.value.isList();
  return fmt::format("{}param '{}' {}{}", of_elements ? "each number of " : "", param.name, refusal,
                     param.help.empty() ? "" : " (" + param.help + ")");
}

std::string range_text(const Param& param) {
  std::string text;
  if (!param.values.empty()) text = "one of " + texts_of(param.values);
  if (param.min && param.max) text = number_text(*param.min) + " to " + number_text(*param.max);
  if (param.min && !param.max) text = "at least " + number_text(*param.min);
  if (param.max && !param.min) text = "at most " + number_text(*param.max);
  if (param.value.isTensor()) return param.finite ? text + (text.empty() ? "" : ", ") + "finite" : text;
  if (param.finite || param.value.isInt() || param.value.isIntList()) return text;
  if (!has_bounds(param)) return "any number, NaN and Inf too";
  return param.min.has_value() == param.max.has_value() ? text : text + ", Inf too";
}

}  // namespace triage::policy
