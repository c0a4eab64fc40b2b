// Divisions to whole numbers and what they leave. Whole numbers are divided by constants alone: ATen raises for 0.
#include <ATen/ATen.h>

#include <limits>

#include "runtime/backends/fused/lowering/lowering.h"

namespace triage::fused {
namespace {

bool is_int_or_long(at::ScalarType dtype) { return dtype == at::kInt || dtype == at::kLong; }

/// The divisor is a whole constant that every number can be divided by. (By -1 the lowest one cannot.)
bool divides(const Lowering& l) {
  const auto divisor = l.integer(1);
  return divisor && *divisor != 0 && *divisor != -1 && *divisor >= std::numeric_limits<int32_t>::min() &&
         *divisor <= std::numeric_limits<int32_t>::max();
}

bool of_two(Lowering& l, const char* of_reals, const char* of_whole) {
  return elementwise(l, {0, 1}, is_single_or_double, of_reals) ||
         (divides(l) && elementwise(l, {0, 1}, is_int_or_long, of_whole));
}

bool floor_divide(Lowering& l) { return of_two(l, "floor_divided({0}, {1})", "floor_divided({0}, {1})"); }
bool remainder(Lowering& l) { return of_two(l, "remainder_of({0}, {1})", "remainder_of({0}, {1})"); }
bool fmod(Lowering& l) { return of_two(l, "left_over({0}, {1})", "left_over({0}, {1})"); }

bool div_mode(Lowering& l) {
  const auto* mode = l.constant(2);
  if (!mode) return false;
  if (mode->isNone()) return elementwise(l, {0, 1}, is_single_or_double, "{0} / {1}");
  if (!mode->isString()) return false;
  if (mode->toStringRef() == "floor") return floor_divide(l);
  return mode->toStringRef() == "trunc" && of_two(l, "whole_part_of({0} / {1})", "{0} / {1}");
}

}  // namespace

const LowerTable& divisions() {
  static const LowerTable table = {
      {"aten::floor_divide", floor_divide},  {"aten::floor_divide.Scalar", floor_divide},
      {"aten::remainder.Scalar", remainder}, {"aten::remainder.Tensor", remainder},
      {"aten::fmod.Scalar", fmod},           {"aten::fmod.Tensor", fmod},
      {"aten::div.Scalar_mode", div_mode},   {"aten::div.Tensor_mode", div_mode},
  };
  return table;
}

}  // namespace triage::fused
