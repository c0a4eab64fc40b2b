#pragma once
// What polynomials of generated loops are made of. Loops are compiled without contraction: a * b + c is two roundings
// wherever it stands, as ATen computes it. Inside a polynomial, whose result is bounded but is nobody's bits, it may be
// one, where the processor has an instruction for that; so the last bits of exp and its kind differ between processors,
// and on one processor depend on the value alone.
#include "runtime/backends/fused/support/numbers.h"

#define TRIAGE_INLINE [[gnu::always_inline]] inline  // a call would end vectorisation

namespace triage::fused {
inline namespace TRIAGE_SUPPORT {

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__CUDACC_RTC__)
inline constexpr bool rounds_once = true;
#else
inline constexpr bool rounds_once = false;
#endif

/// a * b + c
TRIAGE_INLINE float multiply_add(float a, float b, float c) {
  return rounds_once ? __builtin_fmaf(a, b, c) : a * b + c;
}
TRIAGE_INLINE double multiply_add(double a, double b, double c) {
  return rounds_once ? __builtin_fma(a, b, c) : a * b + c;
}

/// The polynomial in x with these coefficients, that of the highest power first.
template <class T>
TRIAGE_INLINE T polynomial(T, T last) {
  return last;
}
template <class T, class... Rest>
TRIAGE_INLINE T polynomial(T x, T first, T second, Rest... rest) {
  return polynomial(x, multiply_add(first, x, second), rest...);
}

/// 1.5 * 2^23 and 1.5 * 2^52: what is added to them is rounded to a whole number, which is in the last bits then.
inline constexpr float rounder_of_floats = 12582912.0f;
inline constexpr double rounder_of_doubles = 6755399441055744.0;

TRIAGE_INLINE float sign_from(float magnitude, float sign) { return __builtin_copysignf(magnitude, sign); }
TRIAGE_INLINE double sign_from(double magnitude, double sign) { return __builtin_copysign(magnitude, sign); }

}  // namespace TRIAGE_SUPPORT
}  // namespace triage::fused
