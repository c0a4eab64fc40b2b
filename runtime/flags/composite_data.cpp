// Detection, repair and selection as plain ATen calls.
#include <ATen/ATen.h>
#include <runtime/flags/checks.h>
#include <runtime/flags/composite_slots.h>

#include <cmath>
#include <limits>

namespace triage::flags::composite {
namespace {

bool can_be_non_finite(const Tensor& z) {
  return at::isFloatingType(z.scalar_type()) || at::isComplexType(z.scalar_type());
}

// Data that ATen can compare: floats of one byte and complex numbers of halves are widened, which changes no NaN, no Inf and
// no order.
Tensor comparable(const Tensor& z) {
  const auto dtype = z.scalar_type();
  if (dtype == at::kComplexHalf) return z.to(at::kComplexFloat);
  return at::isFloatingType(dtype) && c10::elementSize(dtype) == 1 ? z.to(at::kFloat) : z;
}

Tensor any_in_row(const Tensor& mask) {
  return at::any(mask.dim() == 1 ? at::unsqueeze(mask, 1) : mask.dim() == 2 ? mask : at::flatten(mask, 1, -1), 1);
}

Tensor start(const Tensor& z, const MaybeTensor& flags, int64_t num_slots, ScalarType dtype) {
  return flags ? *flags : new_flags(z, num_slots, dtype);
}

Tensor detect(const char* op, const Tensor& z, const MaybeTensor& given, int64_t location, int64_t num_slots,
              int64_t policy, ScalarType dtype, bool nan, bool inf) {
  check::detection(op, z, given, location, num_slots, policy, dtype);
  auto flags = start(z, given, num_slots, dtype);
  if (!can_be_non_finite(z)) return given ? at::clone(flags, at::MemoryFormat::Contiguous) : flags;
  const auto values = comparable(z);
  if (nan) {
    flags = push_where(flags, to_int(err::nan), location, to_int(err::critical), any_in_row(at::isnan(values)),
                       num_slots, policy);
  }
  if (inf) {
    flags = push_where(flags, to_int(err::inf), location, to_int(err::critical), any_in_row(at::isinf(values)),
                       num_slots, policy);
  }
  return flags;
}

Tensor nowhere(const Tensor& z) { return at::zeros_like(z, z.options().dtype(at::kBool)); }

Tensor equal_to(const Tensor& z, int64_t value) {
  if (c10::isIntegralType(z.scalar_type(), /*includeBool=*/true)) return at::eq(z.to(at::kLong), value);
  return check::holds(z.scalar_type(), value) ? at::eq(z, value) : nowhere(z);
}

// ATen would compare integers with a number that has a fraction as float32, in which they are rounded.
Tensor equal_to(const Tensor& z, double value) {
  if (c10::isIntegralType(z.scalar_type(), /*includeBool=*/true)) {
    const bool whole = value == std::trunc(value) && value >= -0x1p63 && value < 0x1p63;
    return whole ? equal_to(z, static_cast<int64_t>(value)) : nowhere(z);
  }
  return check::holds(z.scalar_type(), value) ? at::eq(z, value) : nowhere(z);
}

}  // namespace

Tensor over_rows(const Tensor& mask, int64_t dim) {
  if (dim <= 1 || mask.dim() == 0) return mask;
  std::vector<int64_t> shape(static_cast<size_t>(dim), 1);
  shape[0] = -1;
  return at::reshape(mask, shape);
}

Tensor flag_nan(const Tensor& z, const MaybeTensor& flags, int64_t location, int64_t num_slots, int64_t policy,
                ScalarType dtype) {
  return detect("flag_nan", z, flags, location, num_slots, policy, dtype, true, false);
}

Tensor flag_inf(const Tensor& z, const MaybeTensor& flags, int64_t location, int64_t num_slots, int64_t policy,
                ScalarType dtype) {
  return detect("flag_inf", z, flags, location, num_slots, policy, dtype, false, true);
}

Tensor flag_nan_and_inf(const Tensor& z, const MaybeTensor& flags, int64_t location, int64_t num_slots, int64_t policy,
                        ScalarType dtype) {
  return detect("flag_nan_and_inf", z, flags, location, num_slots, policy, dtype, true, true);
}

Tensor flag_oob_indices(const Tensor& ids, int64_t num_embeddings, const MaybeTensor& given, int64_t location,
                        int64_t num_slots, int64_t policy, ScalarType dtype) {
  check::indices(ids, num_embeddings);
  check::detection("flag_oob_indices", ids, given, location, num_slots, policy, dtype);
  auto flags = start(ids, given, num_slots, dtype);
  const auto wide = ids.to(at::kLong);
  auto outside = at::logical_or(at::lt(wide, 0), at::ge(wide, num_embeddings));
  return push_where(flags, to_int(err::out_of_bounds), location, to_int(err::error), any_in_row(outside), num_slots,
                    policy);
}

std::tuple<Tensor, Tensor> fix(const Tensor& z, const Tensor& flags, const Tensor& fallback, int64_t location,
                               int64_t codes, int64_t min_severity, int64_t num_slots, int64_t policy) {
  check::fix(z, flags, location, codes, min_severity, num_slots, policy);
  check::fallback(z, fallback);
  auto bad = match(flags, codes, min_severity);
  const auto dtype = at::result_type(z, fallback);
  auto value = fallback.to(fallback.dim() == 0 ? z.device() : fallback.device(), dtype);
  auto repaired = at::where(over_rows(bad, z.dim()), value, z.to(dtype));
  return {repaired,
          push_where(flags, to_int(err::fallback_value), location, to_int(err::warn), bad, num_slots, policy)};
}

std::tuple<Tensor, Tensor> fix_scalar(const Tensor& z, const Tensor& flags, const Scalar& fallback, int64_t location,
                                      int64_t codes, int64_t min_severity, int64_t num_slots, int64_t policy) {
  check::fix(z, flags, location, codes, min_severity, num_slots, policy);
  check::fill("fix", "fallback", fallback, z);
  auto bad = match(flags, codes, min_severity);
  auto repaired = at::where(over_rows(bad, z.dim()), fallback, z);
  return {repaired,
          push_where(flags, to_int(err::fallback_value), location, to_int(err::warn), bad, num_slots, policy)};
}

Tensor take_ok_p(const Tensor& flags, const Tensor& z, const Scalar& fill) {
  check::flags("take_ok_p", flags);
  check::data("take_ok_p", z, flags);
  check::fill("take_ok_p", "fill", fill, z);
  return at::where(over_rows(is_ok(flags), z.dim()), z, fill);
}

Tensor take_err_p(const Tensor& flags, const Tensor& z, const Scalar& fill) {
  check::flags("take_err_p", flags);
  check::data("take_err_p", z, flags);
  check::fill("take_err_p", "fill", fill, z);
  return at::where(over_rows(is_err(flags), z.dim()), z, fill);
}

Tensor replaced(const Tensor& data, bool nan, bool posinf, bool neginf, at::ArrayRef<double> values,
                at::IntArrayRef integers) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const auto z = comparable(data);
  Tensor hit;
  auto also = [&](const Tensor& more) { hit = hit.defined() ? at::logical_or(hit, more) : more; };
  if (nan) also(at::ne(z, z));  // `isnan` knows no Meta tensors in LibTorch 1.13
  if (posinf && neginf) also(at::isinf(z));
  if (posinf && !neginf) also(at::eq(z, inf));
  if (neginf && !posinf) also(at::eq(z, -inf));
  for (double wanted : values) also(equal_to(z, wanted));
  for (int64_t wanted : integers) also(equal_to(z, wanted));
  return hit;
}

Tensor replace(const Tensor& z, const Scalar& value, bool nan, bool posinf, bool neginf, at::ArrayRef<double> values,
               at::IntArrayRef integers) {
  check::fill("replace", "value", value, z);
  const auto hit = replaced(z, nan, posinf, neginf, values, integers);
  return hit.defined() ? at::where(hit, value, z) : at::clone(z);
}

Tensor select(const Tensor& cond, const Tensor& a, const Tensor& b) {
  const bool rows = check::select(cond, a, b);
  return at::where(rows ? over_rows(cond, a.dim()) : cond, a, b);
}

Tensor guard_grad(const Tensor& z, const Tensor& taken) {
  check::guard_grad(z, taken);
  return at::alias(z);
}

}  // namespace triage::flags::composite
