#include "runtime/diagnose/isolation/poison.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <fmt/format.h>
#include <triage/flags.h>

#include <limits>

namespace triage::diagnose {
namespace {

template <typename T>
at::Scalar end_of_range(bool upper) {
  return upper ? std::numeric_limits<T>::max() : std::numeric_limits<T>::lowest();
}

at::Scalar end_of_range(at::ScalarType dtype, bool upper) {
  switch (c10::toRealValueType(dtype)) {
    case at::kBool:
      return upper;
    case at::kByte:
      return end_of_range<uint8_t>(upper);
    case at::kChar:
      return end_of_range<int8_t>(upper);
    case at::kShort:
      return end_of_range<int16_t>(upper);
    case at::kInt:
      return end_of_range<int32_t>(upper);
    case at::kLong:
      return end_of_range<int64_t>(upper);
    case at::kHalf:
      return static_cast<double>(std::numeric_limits<c10::Half>::max());
    case at::kBFloat16:
      return static_cast<double>(std::numeric_limits<c10::BFloat16>::max());
    case at::kFloat:
      return static_cast<double>(std::numeric_limits<float>::max());
    case at::kDouble:
      return std::numeric_limits<double>::max();
    default: {  // floats of a byte: the largest of those that are finite
      const at::Tensor all = at::arange(0, 128, at::kByte).view(dtype).to(at::kDouble);
      return all.masked_select(all.isfinite()).max().item<double>();
    }
  }
}

at::Scalar value_of(Poison poison, at::ScalarType dtype) {
  switch (poison) {
    case Poison::inf:
      return std::numeric_limits<double>::infinity();
    case Poison::minus_inf:
      return -std::numeric_limits<double>::infinity();
    case Poison::largest:
      return end_of_range(dtype, true);
    case Poison::smallest:
      return end_of_range(dtype, false);
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

at::Tensor with_error_record(const at::Tensor& flags, int64_t row) {
  at::Tensor where = at::zeros({flags.size(0)}, flags.options().dtype(at::kBool));
  where[row] = true;
  return err::push(flags, err::nan, ErrorLocation::UNKNOWN, {.where = where});
}

}  // namespace

double largest_of(at::ScalarType dtype) { return end_of_range(dtype, true).toDouble(); }

bool is_real(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
}

std::vector<Poison> poisons_for(at::ScalarType dtype, bool is_flags) {
  if (is_flags) return {Poison::error_record};
  if (is_real(dtype) || at::isComplexType(dtype))
    return {Poison::nan, Poison::one_nan, Poison::inf, Poison::minus_inf, Poison::largest};
  if (at::isIntegralType(dtype, /*includeBool=*/true)) return {Poison::largest, Poison::smallest};
  return {};
}

std::string poison_text(Poison poison, at::ScalarType dtype) {
  switch (poison) {
    case Poison::nan:
      return "NaN";
    case Poison::one_nan:
      return "one NaN";
    case Poison::inf:
      return "Inf";
    case Poison::minus_inf:
      return "-Inf";
    case Poison::error_record:
      return "an error";
    default:
      break;
  }
  const at::Scalar value = value_of(poison, dtype);
  if (value.isBoolean()) return value.toBool() ? "true" : "false";
  return value.isFloatingPoint() ? fmt::format("{:.6g}", value.toDouble()) : fmt::format("{}", value.toLong());
}

const char* poison_name(Poison poison) {
  static constexpr const char* names[] = {"nan", "one_nan", "inf", "minus_inf", "largest", "smallest", "error_record"};
  return names[static_cast<size_t>(poison)];
}

at::Tensor poisoned(const at::Tensor& tensor, int64_t row, Poison poison) {
  const at::NoGradGuard no_grad;
  if (poison == Poison::error_record) return with_error_record(tensor, row);
  // Not `clone`: an expanded tensor has its rows in one place.
  at::Tensor result = tensor.detach().clone(at::MemoryFormat::Contiguous);
  at::Tensor sample = result.select(0, row);
  const at::Scalar value = value_of(poison, tensor.scalar_type());
  if (poison == Poison::one_nan && sample.numel() > 0)
    sample.view({-1})[row * 7 % sample.numel()].fill_(value);
  else
    sample.fill_(value);
  return result.set_requires_grad(tensor.requires_grad());
}

at::Tensor without_bad_values(const at::Tensor& tensor) {
  if (!is_real(tensor.scalar_type()) || tensor.dim() == 0 || tensor.numel() == 0) return tensor;
  const at::NoGradGuard no_grad;
  const at::Tensor fine = at::isfinite(tensor).reshape({tensor.size(0), -1}).all(1);
  if (fine.all().item<bool>()) return tensor;
  at::Tensor result = tensor.detach().clone(at::MemoryFormat::Contiguous);
  if (fine.any().item<bool>()) {
    const at::Tensor good = result[fine.to(at::kByte).argmax().item<int64_t>()].clone();
    result.index_put_({fine.logical_not()}, good);
  } else {
    result.nan_to_num_(0, 0, 0);
  }
  return result.set_requires_grad(tensor.requires_grad());
}

}  // namespace triage::diagnose
