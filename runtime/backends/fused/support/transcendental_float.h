#pragma once
// exp, log, erf and their kind of floats. Coefficients: Cephes, single precision (S. Moshier); those of erf beyond 1
// are a least-squares fit of log(erfc(x)) / -x over [1, 4], those of asin and atan minimax fits (Remez).
#include "runtime/backends/fused/support/polynomial.h"

namespace triage::fused {
inline namespace TRIAGE_SUPPORT {

/// 2^n for n in -126..127.
TRIAGE_INLINE float power_of_two(uint32_t n) { return bits_as<float>((n + 127) << 23); }

/// (1 + minus_one) 2^exponent, where minus_one is in [-0.3, 0.42].
struct ReducedFloat {
  float minus_one;
  uint32_t exponent;  // wraps
};

/// e^r - 1 for |r| <= ln(2) / 2, of one float or of a vector.
template <class T>
TRIAGE_INLINE T small_exponential_minus_one(T r) {
  const T zero{};
  const T p = polynomial(r, zero + 1.9875691500e-4f, zero + 1.3981999507e-3f, zero + 8.3334519073e-3f,
                         zero + 4.1665795894e-2f, zero + 1.6666665459e-1f, zero + 5.0000001201e-1f);
  return multiply_add(p, r * r, r);
}

/// The whole number in the last bits of `shifted`, without a conversion that NaN would make undefined.
TRIAGE_INLINE uint32_t whole_in(float shifted) {
  return bits_as<uint32_t>(shifted) - bits_as<uint32_t>(rounder_of_floats);
}

/// e^x, of x whose power is a number. What it gives of others is replaced by a selection at the end: bounds at the
/// beginning would become branches.
TRIAGE_INLINE ReducedFloat reduced_exponential(float x) {
  const float shifted = multiply_add(x, 1.44269504088896341f, rounder_of_floats);  // x = n ln 2 + r
  const float n = shifted - rounder_of_floats;
  const float r = multiply_add(n, 2.12194440e-4f, multiply_add(n, -0.693359375f, x));
  return {small_exponential_minus_one(r), whole_in(shifted)};
}

/// In two steps: subnormal results, and 2^128.
TRIAGE_INLINE float scaled(ReducedFloat e) {
  const auto first = static_cast<uint32_t>(static_cast<int32_t>(e.exponent) >> 1);
  return (e.minus_one + 1.0f) * power_of_two(first) * power_of_two(e.exponent - first);
}

/// e^x for x in [-104, 89]
TRIAGE_INLINE float exponential_inside(float x) { return scaled(reduced_exponential(x)); }

TRIAGE_INLINE float exponential(float x) {
  const float inside = exponential_inside(x);
  return x > 89.0f ? __builtin_inff() : (x < -104.0f ? 0.0f : inside);
}

/// 2^x
TRIAGE_INLINE float exponential_of_two(float x) {
  const float shifted = x + rounder_of_floats, r = (x - (shifted - rounder_of_floats)) * 0.693147180559945309f;
  const float inside = scaled(ReducedFloat{small_exponential_minus_one(r), whole_in(shifted)});
  return x > 129.0f ? __builtin_inff() : (x < -151.0f ? 0.0f : inside);
}

/// e^x - 1 for x in [-20, 88.8]
TRIAGE_INLINE float exponential_minus_one_inside(float x) {
  const ReducedFloat e = reduced_exponential(x);
  const float half = power_of_two(e.exponent - 1);  // of 2^n, which may be beyond the largest float
  return multiply_add(half, e.minus_one, half - 0.5f) * 2.0f;
}

/// e^x - 1
TRIAGE_INLINE float exponential_minus_one(float x) {
  const float inside = __builtin_copysignf(exponential_minus_one_inside(x), x);
  return x > 88.8f ? __builtin_inff() : (x < -20.0f ? -1.0f : inside);
}

/// x = (1 + f) 2^exponent with sqrt(1/2) <= 1 + f < sqrt(2), for positive numbers.
struct SplitFloat {
  float f, exponent;
};
TRIAGE_INLINE SplitFloat split(float x) {
  const bool tiny = x < 0x1p-126f;
  const uint32_t bits = bits_as<uint32_t>(tiny ? x * 0x1p23f : x);
  const uint32_t shifted = bits + (0x3F800000u - 0x3F3504F3u);
  const int32_t exponent = static_cast<int32_t>(shifted >> 23) - 127 - (tiny ? 23 : 0);
  return {bits_as<float>((shifted & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f, static_cast<float>(exponent)};
}

/// log(1 + f) - f + f^2 / 2, for f of a SplitFloat
TRIAGE_INLINE float cubic_of_logarithm(float f) {
  return f * f * f *
         polynomial(f, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                    -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f);
}

/// A logarithm of x, `finite` for what is between the ends.
TRIAGE_INLINE float with_ends(float x, float finite) {
  const float inf = __builtin_inff();
  const float positive = x == inf ? inf : finite;
  return x > 0.0f ? positive : (x == 0.0f ? -inf : __builtin_nanf(""));
}

TRIAGE_INLINE float logarithm(float x) {
  const SplitFloat one = split(x);
  const float small = multiply_add(one.exponent, -2.12194440e-4f, cubic_of_logarithm(one.f));
  return with_ends(x, multiply_add(one.exponent, 0.693359375f, one.f + multiply_add(-0.5f, one.f * one.f, small)));
}

TRIAGE_INLINE float logarithm_of_base_two(float x) {
  const SplitFloat one = split(x);
  const float log = one.f + multiply_add(-0.5f, one.f * one.f, cubic_of_logarithm(one.f));
  return with_ends(x, one.exponent + multiply_add(log, 0x1.715476p+0f, log * 0x1.4ae0cp-26f));
}

TRIAGE_INLINE float logarithm_of_base_ten(float x) {
  const SplitFloat one = split(x);
  const float log = one.f + multiply_add(-0.5f, one.f * one.f, cubic_of_logarithm(one.f));
  const float small = multiply_add(one.exponent, 0x1.3509f8p-18f, log * 0x1.bcb7b2p-2f);
  return with_ends(x, multiply_add(one.exponent, 0x1.344p-2f, small));
}

TRIAGE_INLINE float error_function(float x) {
  const float z = x * x, a = __builtin_fabsf(x);
  const float p =
      polynomial(z, 7.853861353153693e-5f, -8.010193625184903e-4f, 5.188327685732524e-3f, -2.685381193529856e-2f,
                 1.128358514861418e-1f, -3.761262582423300e-1f, 1.283791657267100e-1f);
  const float q = polynomial(a, -2.101831341860816e-4f, 3.1831255182623863e-3f, -2.2786112502217293e-2f,
                             1.0509670525789261e-1f, 6.358463764190674e-1f, 1.128475546836853e0f);
  const float small = multiply_add(p, a, a), large = 1.0f - exponential_inside(-a * q);
  return __builtin_copysignf(a > 4.0f ? 1.0f : (a < 1.0f ? small : large), x);
}

/// (asin(s) - s) / s for z = s^2 <= 1/4
TRIAGE_INLINE float arc_sine_beyond(float z) {
  return z * polynomial(z, 0x1.33b79a45841a6p-5f, 0x1.d800c6b4a75d4p-7f, 0x1.04a53099c17f5p-5f, 0x1.6cac65516a663p-5f,
                        0x1.33388d75c4763p-4f, 0x1.55554c397f3b3p-3f);
}
/// (atan(t) - t) / t for z = t^2, |t| <= tan(pi / 8)
TRIAGE_INLINE float arc_tangent_beyond(float z) {
  return z * polynomial(z, -0x1.f25bea62ddfbep-5f, 0x1.b2039c4f28e18p-4f, -0x1.23b6da7390041p-3f, 0x1.9991af8d79711p-3f,
                        -0x1.55554962a2e66p-2f);
}

}  // namespace TRIAGE_SUPPORT
}  // namespace triage::fused
