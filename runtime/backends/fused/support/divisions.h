#pragma once
// Divisions to whole numbers and what they leave, exactly. Of floats without a branch, in double; doubles go to the C
// library, one at a time.
#include "runtime/backends/fused/support/polynomial.h"

namespace triage::fused {
inline namespace TRIAGE_SUPPORT {

/// What a division leaves, with the sign of `a`. Whole numbers: b is neither 0 nor -1.
template <class T>
TRIAGE_INLINE T left_over(T a, T b) {
  return static_cast<T>(a % b);
}
TRIAGE_INLINE double left_over(double a, double b) { return __builtin_fmod(a, b); }
/// `left`, below 2^(bits steps) divisors, less multiples of the divisor, until it is nearest to 0. A step takes as many
/// as are nearest, or nearly, of 2^(bits (steps - 1)) divisors: fewer than 2^(bits + 1), whose product with a divisor
/// that was a float is exact in double, or which are one operation with the difference. What it leaves has no more bits
/// than the floats had.
template <int steps, int bits>
TRIAGE_INLINE double less_multiples(double left, double divisor, double inverse) {
  if constexpr (steps > 0) {
    const double scale = __builtin_ldexp(1.0, bits * (steps - 1)), down = __builtin_ldexp(1.0, -bits * (steps - 1));
    const double times = __builtin_rint(left * (inverse * down));
    return less_multiples<steps - 1, bits>(multiply_add(-times, divisor * scale, left), divisor, inverse);
  }
  return left;
}
TRIAGE_INLINE float left_over(float a, float b) {
  constexpr int bits = rounds_once ? 50 : 28, steps = 277 / bits + 1;  // of two floats the quotient is below 2^277
  const double size = __builtin_fabs(static_cast<double>(b)), divisor = size > 0x1p130 ? 0x1p130 : size;  // Inf as well
  const double near = less_multiples<steps, bits>(__builtin_fabs(static_cast<double>(a)), divisor, 1.0 / divisor);
  return __builtin_copysignf(static_cast<float>(near < 0.0 ? near + divisor : near), a);  // 0 and Inf have left NaN
}
/// The same with the sign of `b`.
template <class T>
TRIAGE_INLINE T remainder_of(T a, T b) {
  const T left = left_over(a, b);
  return (left != T(0)) & ((b < T(0)) != (left < T(0))) ? static_cast<T>(left + b) : left;
}
/// a / b rounded down: of whole numbers, and of real ones as if their quotient were exact.
template <class T>
TRIAGE_INLINE T floor_divided(T a, T b) {
  const T left = left_over(a, b);
  return static_cast<T>(a / b - ((left != T(0)) & ((b < T(0)) != (left < T(0)))));
}
template <class T>
TRIAGE_INLINE T floor_divided_real(T a, T b) {
  const T left = left_over(a, b), whole = (a - left) / b;
  const T quotient = (left != T(0)) & ((b < T(0)) != (left < T(0))) ? whole - T(1) : whole;
  const T down = floor_of(quotient), near = quotient - down > T(0.5) ? down + T(1) : down;
  const T simple = a / b;
  const T zero = sizeof(T) == 8 ? T(__builtin_copysign(0.0, simple)) : T(__builtin_copysignf(0.0f, simple));
  return b == T(0) ? simple : (quotient != T(0) ? near : zero);
}
TRIAGE_INLINE float floor_divided(float a, float b) { return floor_divided_real(a, b); }
TRIAGE_INLINE double floor_divided(double a, double b) { return floor_divided_real(a, b); }

}  // namespace TRIAGE_SUPPORT
}  // namespace triage::fused
