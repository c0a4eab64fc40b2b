#pragma once
// Functions of floats and doubles as polynomials that vectorise inside a loop: no call, which would end it, and no
// branch. Accuracy against the exact value, at every argument, is tested: 2 ulp for exp, exp2, expm1, log, log2, log10,
// log1p, erf, cosh, acos and atan, 3 ulp for tanh, sigmoid, sinh and asin, 1 ulp for pow and atan2, which are there for
// floats alone and are computed in double.
#include "runtime/backends/fused/support/transcendental_double.h"
#include "runtime/backends/fused/support/transcendental_float.h"

namespace triage::fused {
inline namespace TRIAGE_SUPPORT {

/// log(1 + x)
template <class T>
TRIAGE_INLINE T logarithm_of_one_plus(T x) {
  const T sum = 1 + x, log = logarithm(sum);
  const T near = log + (x - (sum - 1)) / sum;  // what the rounding of the sum lost
  return sum == 1 ? x : ((sum > 0) & (sum < T(__builtin_inf())) ? near : log);
}

/// t / (t + 2) with t = e^2|x| - 1
template <class T>
TRIAGE_INLINE T hyperbolic_tangent(T x) {
  const T a = magnitude_of(x), t = exponential_minus_one_inside(a + a);
  return sign_from(a > 20 ? T(1) : t / (t + 2), x);
}

template <class T>
TRIAGE_INLINE T sigmoid(T x) {
  const T a = magnitude_of(x), inside = exponential_inside(-a);  // of the side that does not overflow
  const T power = a > (sizeof(T) == 8 ? 746 : 104) ? T(0) : inside;
  return (x < 0 ? power : T(1)) / (1 + power);
}

/// sinh and cosh by a quarter of e^|x|, which stays below the largest number where they do.
template <class T>
inline constexpr T last_of_hyperbolic = sizeof(T) == 8 ? T(710.5) : T(89.5);
template <class T>
TRIAGE_INLINE T hyperbolic_sine(T x) {
  const T a = magnitude_of(x);
  const auto e = reduced_exponential(a);
  const T quarter = power_of_two(e.exponent - 2);
  const T part = multiply_add(quarter, e.minus_one, quarter - T(0.25));  // (e^a - 1) / 4
  const T inside = 2 * (part + part / multiply_add(T(4), part, T(1)));
  return sign_from(a > last_of_hyperbolic<T> ? T(__builtin_inf()) : (a < T(0x1p-28) ? a : inside), x);
}
template <class T>
TRIAGE_INLINE T hyperbolic_cosine(T x) {
  const T a = magnitude_of(x);
  const auto e = reduced_exponential(a);
  const T quarter = power_of_two(e.exponent - 2), part = multiply_add(quarter, e.minus_one, quarter);
  const T inside = 2 * (part + T(0.0625) / part);
  return a > last_of_hyperbolic<T> ? T(__builtin_inf()) : inside;
}

/// pi / 2: the nearest number, and what that lacks.
template <class T>
inline constexpr T half_pi = sizeof(T) == 8 ? T(0x1.921fb54442d18p+0) : T(0x1.921fb6p+0);
template <class T>
inline constexpr T half_pi_rest = sizeof(T) == 8 ? T(0x1.1a62633145c07p-54) : T(-0x1.777a5cp-25);

/// asin(x) = pi / 2 - 2 asin(sqrt((1 - x) / 2)) beyond 1/2, and acos(x) is what is taken away there.
template <class T>
TRIAGE_INLINE T arc_sine(T x) {
  const T a = magnitude_of(x);
  const bool large = a > T(0.5);
  const T z = large ? T(0.5) * (1 - a) : a * a, s = large ? root(z) : a, more = s * arc_sine_beyond(z);
  const T far = (half_pi<T> - 2 * s) - (2 * more - half_pi_rest<T>);
  return sign_from(large ? far : s + more, x);
}
template <class T>
TRIAGE_INLINE T arc_cosine(T x) {
  const T a = magnitude_of(x);
  const bool large = a > T(0.5);
  const T z = large ? T(0.5) * (1 - a) : a * a, s = large ? root(z) : x;
  const T near = multiply_add(arc_sine_beyond(z), s, s);
  const T far = x < 0 ? 2 * half_pi<T> - 2 * (near - half_pi_rest<T>) : 2 * near;
  return large ? far : half_pi<T> - (near - half_pi_rest<T>);
}

/// atan(low / high) for 0 <= low <= high: beyond tan(pi / 8) it is pi / 4 less the angle between.
template <class T>
TRIAGE_INLINE T arc_tangent_of(T low, T high) {
  const bool large = low > T(0.41421356237309503) * high;
  const T t = (large ? low - high : low) / (large ? low + high : high);
  const T near = multiply_add(arc_tangent_beyond(t * t), t, large ? half_pi_rest<T> / 2 : T(0)) + t;
  return large ? half_pi<T> / 2 + near : near;
}
template <class T>
TRIAGE_INLINE T arc_tangent(T x) {
  const T a = magnitude_of(x), angle = arc_tangent_of(a > 1 ? T(1) : a, a > 1 ? a : T(1));
  return sign_from(a > 1 ? half_pi<T> - (angle - half_pi_rest<T>) : angle, x);
}

/// The angle of the point (x, y).
TRIAGE_INLINE float arc_tangent_of_point(float y, float x) {
  const double up = __builtin_fabs(static_cast<double>(y)), along = __builtin_fabs(static_cast<double>(x));
  const bool steep = up > along, diagonal = up == along;  // Inf over Inf, and 0 over 0, which is 0 or pi
  const double low = diagonal ? (up == 0.0 ? 0.0 : 1.0) : (steep ? along : up);
  const double high = diagonal ? 1.0 : (steep ? up : along);
  const double angle = arc_tangent_of(low, high), turned = steep ? half_pi<double> - angle : angle;
  const double whole = bits_as<int32_t>(x) < 0 ? 2 * half_pi<double> - turned : turned;
  return (x != x) | (y != y) ? __builtin_nanf("") : __builtin_copysignf(static_cast<float>(whole), y);
}

/// x^y with the special cases of C.
TRIAGE_INLINE float power(float x, float y) {
  const float a = __builtin_fabsf(x);
  const auto size = static_cast<float>(exponential(static_cast<double>(y) * logarithm(static_cast<double>(a))));
  const bool whole = __builtin_rintf(y) == y, odd = whole & (__builtin_rintf(0.5f * y) != 0.5f * y);
  const bool negative = bits_as<int32_t>(x) < 0;
  const float of_sign = negative & odd ? -size : size;
  const float real = (x < 0.0f) & (a < __builtin_inff()) & !whole ? __builtin_nanf("") : of_sign;
  return (y == 0.0f) | (x == 1.0f) | ((a == 1.0f) & (__builtin_fabsf(y) == __builtin_inff())) ? 1.0f : real;
}

}  // namespace TRIAGE_SUPPORT
}  // namespace triage::fused
