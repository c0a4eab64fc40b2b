// Divisions to whole numbers and what they leave. Whole numbers are divided by constants alone: ATen raises for 0.
#include <ATen/ATen.h>

#include <limits>

#include "runtime/backends/fused/lowering/lowering.h"

namespace triage::fused {
namespace {

/// The divisor is a whole constant that every number can be divided by. (By -1 the lowest one cannot.)
bool divides(const Lowering& l) {
  const auto divisor = l.integer(1);
  return divisor && *divisor != 0 && *divisor != -1 && *divisor >= std::numeric_limits<int32_t>::min() &&
         *divisor <= std::numeric_limits<int32_t>::max();
}

bool of_two(Lowering& l, const char* of_reals, const char* of_whole) {
  return elementwise(l, Dtypes::single_or_double, of_reals) ||
         (divides(l) && elementwise(l, Dtypes::int_or_long, of_whole));
}

bool floor_divide(Lowering& l) { return of_two(l, "floor_divide(a, b)", "floor_divide(a, b)"); }
bool remainder(Lowering& l) { return of_two(l, "remainder(a, b)", "remainder(a, b)"); }
bool fmod(Lowering& l) { return of_two(l, "fmod(a, b)", "fmod(a, b)"); }

bool div_mode(Lowering& l) {
  const auto* mode = l.constant(2);
  if (!mode) return false;
  if (mode->isNone()) return elementwise(l, Dtypes::single_or_double, "a / b");
  if (!mode->isString()) return false;
  if (mode->toStringRef() == "floor") return floor_divide(l);
  return mode->toStringRef() == "trunc" && of_two(l, "trunc(a / b)", "a / b");
}

}  // namespace

const LowerTable& divisions() {
  static const auto& table = *new LowerTable{
      {"aten::floor_divide", floor_divide},  {"aten::floor_divide.Scalar", floor_divide},
      {"aten::remainder.Scalar", remainder}, {"aten::remainder.Tensor", remainder},
      {"aten::fmod.Scalar", fmod},           {"aten::fmod.Tensor", fmod},
      {"aten::div.Scalar_mode", div_mode},   {"aten::div.Tensor_mode", div_mode},
  };
  return table;
}

}  // namespace triage::fused
