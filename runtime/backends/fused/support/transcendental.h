#pragma once
// exp, log, tanh, erf and the logistic function as polynomials that vectorise inside a loop (a call to a vector library would
// end it). Coefficients: Cephes, single precision (S. Moshier); those of erf beyond 1 are a least-squares fit of
// log(erfc(x)) / -x over [1, 4]. Accuracy against the exact value is tested: 2 ulp for exp, log, expm1,
// log1p and erf, 3 ulp for tanh and sigmoid. Doubles go to the C library, one at a time.
#include "runtime/backends/fused/support/numbers.h"

namespace triage::fused {

/// 2^n for n in -126..127.
inline float power_of_two(int32_t n) { return bits_as<float>(static_cast<uint32_t>(n + 127) << 23); }

/// e^x = (1 + minus_one) 2^exponent, where minus_one is in [-0.3, 0.42].
struct ReducedExponential {
  float minus_one;
  int32_t exponent;
};

inline ReducedExponential reduced_exponential(float x) {
  // x = n ln 2 + r. Beyond these bounds the result is 0 or Inf whatever x is; NaN passes through every comparison.
  const float high = x > 89.0f ? 89.0f : x;
  const float bounded = high < -104.0f ? -104.0f : high;
  const float rounder = 12582912.0f;  // 1.5 * 2^23: what is added to it comes back as a whole number
  const float shifted = bounded * 1.44269504088896341f + rounder;
  const float n = shifted - rounder;
  float r = bounded - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  // n, without a conversion that NaN would make undefined
  return {p * (r * r) + r, bits_as<int32_t>(shifted) - 0x4B400000};
}

inline float exponential(float x) {
  const ReducedExponential e = reduced_exponential(x);
  const int32_t inside = e.exponent < -150 ? -150 : (e.exponent > 130 ? 130 : e.exponent);
  const int32_t first = inside >> 1;
  // in two steps: subnormal results, and 2^128
  return (e.minus_one + 1.0f) * power_of_two(first) * power_of_two(inside - first);
}

/// e^x - 1
inline float exponential_minus_one(float x) {
  const ReducedExponential e = reduced_exponential(x);
  const int32_t inside = e.exponent < -30 ? -30 : (e.exponent > 128 ? 128 : e.exponent);
  const float half = power_of_two(inside - 1);  // of 2^n, which may be beyond the largest float
  return __builtin_copysignf((half * e.minus_one + (half - 0.5f)) * 2.0f, x);
}

inline float logarithm(float x) {
  const bool tiny = x < 0x1p-126f;
  const uint32_t bits = bits_as<uint32_t>(tiny ? x * 0x1p23f : x);
  // x = m 2^e with sqrt(1/2) <= m < sqrt(2)
  const uint32_t shifted = bits + (0x3F800000u - 0x3F3504F3u);
  const int32_t e = static_cast<int32_t>(shifted >> 23) - 127 - (tiny ? 23 : 0);
  const float f = bits_as<float>((shifted & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
  const float z = f * f;
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  float y = f * z * p;
  const float n = static_cast<float>(e);
  y = y + n * -2.12194440e-4f;
  y = y - 0.5f * z;
  const float finite = f + y + n * 0.693359375f;
  const float nan = __builtin_nanf(""), inf = __builtin_inff();
  const float positive = x == inf ? inf : finite;
  return x > 0.0f ? positive : (x == 0.0f ? -inf : nan);
}

inline float hyperbolic_tangent(float x) {
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float a = __builtin_fabsf(x);
  const float small = p * z * a + a;
  const float large = 1.0f - 2.0f / (exponential(a + a) + 1.0f);
  return __builtin_copysignf(a < 0.625f ? small : large, x);
}

/// log(1 + x)
inline float logarithm_of_one_plus(float x) {
  const float sum = 1.0f + x, log = logarithm(sum);
  const float near = log + (x - (sum - 1.0f)) / sum;  // what the rounding of the sum lost
  return sum == 1.0f ? x : ((sum > 0.0f) & (sum < __builtin_inff()) ? near : log);
}

inline float error_function(float x) {
  const float z = x * x, a = __builtin_fabsf(x), bounded = a > 4.0f ? 4.0f : a;
  float p = 7.853861353153693e-5f;
  p = p * z - 8.010193625184903e-4f;
  p = p * z + 5.188327685732524e-3f;
  p = p * z - 2.685381193529856e-2f;
  p = p * z + 1.128358514861418e-1f;
  p = p * z - 3.761262582423300e-1f;
  p = p * z + 1.283791657267100e-1f;
  float q = -2.101831341860816e-4f;
  q = q * bounded + 3.1831255182623863e-3f;
  q = q * bounded - 2.2786112502217293e-2f;
  q = q * bounded + 1.0509670525789261e-1f;
  q = q * bounded + 6.358463764190674e-1f;
  q = q * bounded + 1.128475546836853e0f;
  const float large = __builtin_copysignf(1.0f - exponential(-bounded * q), x);
  return a < 1.0f ? p * x + x : large;
}

inline float sigmoid(float x) {
  const float power = exponential(-__builtin_fabsf(x));  // of the side that does not overflow
  return (x < 0.0f ? power : 1.0f) / (1.0f + power);
}

inline double exponential(double x) { return __builtin_exp(x); }
inline double logarithm(double x) { return __builtin_log(x); }
inline double hyperbolic_tangent(double x) { return __builtin_tanh(x); }
inline double sigmoid(double x) { return 1.0 / (1.0 + __builtin_exp(-x)); }
inline double exponential_minus_one(double x) { return __builtin_expm1(x); }
inline double logarithm_of_one_plus(double x) { return __builtin_log1p(x); }
inline double error_function(double x) { return __builtin_erf(x); }

}  // namespace triage::fused
