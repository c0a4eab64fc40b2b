#pragma once
// exp, log, erf and their kind of doubles, without conversions between doubles and whole numbers, which processors have
// of floats alone before AVX-512. Coefficients: minimax fits (Remez) of (e^r - 1 - r) / r^2, (2 atanh(s) / s - 2) / s^2
// in s^2, erf(x) / x - 1 in x^2, log(erfc(x)) / -x over [1, 6], and asin and atan as of floats.
#include "runtime/backends/fused/support/polynomial.h"

namespace triage::fused {
inline namespace TRIAGE_SUPPORT {

/// 2^n for a whole number n in -1022..1023.
TRIAGE_INLINE double power_of_two(double n) {
  return bits_as<double>(bits_as<uint64_t>(n + (rounder_of_doubles + 1023)) << 52);
}

/// The nearest whole number; |x| < 2^51.
TRIAGE_INLINE double small_nearest_whole(double x) { return (x + rounder_of_doubles) - rounder_of_doubles; }

/// (1 + minus_one) 2^exponent, where minus_one is in [-0.3, 0.42].
struct ReducedDouble {
  double minus_one, exponent;
};

/// e^r - 1 - r for |r| <= ln(2) / 2
TRIAGE_INLINE double beyond_linear(double r) {
  return r * r *
         polynomial(r, 0x1.af7742279d10fp-26, 0x1.28a2cb9f16ff5p-22, 0x1.71dde99201215p-19, 0x1.a019a6672b45fp-16,
                    0x1.a01a01b617fb2p-13, 0x1.6c16c17f4083ep-10, 0x1.111111110e5e7p-7, 0x1.55555555520dbp-5,
                    0x1.555555555555dp-3, 0x1.0000000000005p-1);
}

/// e^x, of x whose power is a number; what others give is replaced by a selection at the end, as of floats.
TRIAGE_INLINE ReducedDouble reduced_exponential(double x) {
  const double n = small_nearest_whole(x * 0x1.71547652b82fep+0);
  const double near = multiply_add(n, -0x1.62e42fee00000p-1, x), less = n * 0x1.a39ef35793c76p-33;
  const double r = near - less, lost = (near - r) - less;
  return {r + (beyond_linear(r) + lost), n};
}

/// In two steps: subnormal results, and 2^1024.
TRIAGE_INLINE double scaled(ReducedDouble e) {
  const double first = small_nearest_whole(e.exponent * 0.5);
  return (e.minus_one + 1.0) * power_of_two(first) * power_of_two(e.exponent - first);
}

/// e^x for x in [-746, 710]
TRIAGE_INLINE double exponential_inside(double x) { return scaled(reduced_exponential(x)); }

TRIAGE_INLINE double exponential(double x) {
  const double inside = exponential_inside(x);
  return x > 710.0 ? __builtin_inf() : (x < -746.0 ? 0.0 : inside);
}

/// 2^x
TRIAGE_INLINE double exponential_of_two(double x) {
  const double n = small_nearest_whole(x), r = (x - n) * 0x1.62e42fefa39efp-1;
  const double inside = scaled(ReducedDouble{r + beyond_linear(r), n});
  return x > 1025.0 ? __builtin_inf() : (x < -1080.0 ? 0.0 : inside);
}

/// e^x - 1 for x in [-40, 710]
TRIAGE_INLINE double exponential_minus_one_inside(double x) {
  const ReducedDouble e = reduced_exponential(x);
  const double half = power_of_two(e.exponent - 1.0);  // of 2^n, which may be beyond the largest double
  const double far = multiply_add(half, e.minus_one, half - 0.5) * 2.0;
  return e.exponent == 0.0 ? e.minus_one : far;
}

/// e^x - 1
TRIAGE_INLINE double exponential_minus_one(double x) {
  const double inside = __builtin_copysign(exponential_minus_one_inside(x), x);
  return x > 710.0 ? __builtin_inf() : (x < -40.0 ? -1.0 : inside);
}

/// x = (1 + f) 2^exponent with sqrt(1/2) <= 1 + f < sqrt(2), for positive numbers.
struct SplitDouble {
  double f, exponent;
};
TRIAGE_INLINE SplitDouble split(double x) {
  const bool tiny = x < 0x1p-1022;
  const uint64_t bits = bits_as<uint64_t>(tiny ? x * 0x1p54 : x);
  const uint64_t shifted = bits + (0x3FF0000000000000u - 0x3FE6A09E667F3BCDu);
  const double f = bits_as<double>((shifted & 0x000FFFFFFFFFFFFFu) + 0x3FE6A09E667F3BCDu) - 1.0;
  const double biased = bits_as<double>((shifted >> 52) | 0x4330000000000000u);  // 2^52 and the exponent's bits
  return {f, biased - (tiny ? 0x1p52 + 1023 + 54 : 0x1p52 + 1023)};
}

/// f - log(1 + f), for f of a SplitDouble: log(1 + f) = 2 atanh(s) with s = f / (2 + f), and 2 s = f - f^2 / 2 + s f^2
/// / 2.
TRIAGE_INLINE double below(double f) {
  const double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  const double p = polynomial(z, 0x1.2f07b672a181bp-3, 0x1.39a188e4b1293p-3, 0x1.74664074e73bfp-3, 0x1.c71c5203c50e6p-3,
                              0x1.24924941f597dp-2, 0x1.999999997fd91p-2, 0x1.5555555555592p-1);
  return half - s * multiply_add(p, z, half);
}

/// A logarithm of x, `finite` for what is between the ends.
TRIAGE_INLINE double with_ends(double x, double finite) {
  const double inf = __builtin_inf();
  const double positive = x == inf ? inf : finite;
  return x > 0.0 ? positive : (x == 0.0 ? -inf : __builtin_nan(""));
}

TRIAGE_INLINE double logarithm(double x) {
  const SplitDouble one = split(x);
  const double less = multiply_add(one.exponent, -0x1.a39ef35793c76p-33, below(one.f));
  return with_ends(x, multiply_add(one.exponent, 0x1.62e42fee00000p-1, one.f - less));
}

TRIAGE_INLINE double logarithm_of_base_two(double x) {
  const SplitDouble one = split(x);
  const double log = one.f - below(one.f);
  return with_ends(x, one.exponent + multiply_add(log, 0x1.777d0ffda0d24p-56, log * 0x1.71547652b82fep+0));
}

TRIAGE_INLINE double logarithm_of_base_ten(double x) {
  const SplitDouble one = split(x);
  const double log = one.f - below(one.f);
  const double less = multiply_add(one.exponent, 0x1.f79fef311f12bp-34, log * 0x1.bcb7b1526e50ep-2);
  return with_ends(x, multiply_add(one.exponent, 0x1.3441350800000p-2, less));
}

TRIAGE_INLINE double error_function(double x) {
  const double z = x * x, a = __builtin_fabs(x);
  const double p =
      polynomial(z, -0x1.acdff90b8ebd8p-31, 0x1.d784936618cc2p-27, -0x1.5c16e30fb0d45p-23, 0x1.b9827b1885f9bp-20,
                 -0x1.f4ca94990cb86p-17, 0x1.f9a2bf73f0c68p-14, -0x1.c02db072f3fe0p-11, 0x1.565bccfa9a825p-8,
                 -0x1.b82ce312062bcp-6, 0x1.ce2f21a041018p-4, -0x1.812746b0379c2p-2, 0x1.06eba8214db68p-3);
  const double q =
      polynomial(a, -0x1.a871d056ea9ccp-40, 0x1.26bb77de30416p-34, -0x1.7f4db4c9d4c40p-30, 0x1.35ee7224674adp-26,
                 -0x1.5c92e45758974p-23, 0x1.20526961921ddp-20, -0x1.68382bfad61aep-18, 0x1.547327f6ff1aap-16,
                 -0x1.d4c8804479244p-15, 0x1.8f264896f1364p-14, -0x1.e1fc6d55503eep-22, -0x1.2da3c2dcabfcfp-11,
                 0x1.bbe1c5fab2096p-10, -0x1.bdb93ebf08172p-13, -0x1.3956c2931d0a4p-6, 0x1.a4f2e9c4858c5p-4,
                 0x1.45f317cc5e239p-1, 0x1.20dd74073dc59p+0);
  const double small = multiply_add(p, a, a), large = 1.0 - exponential_inside(-a * q);
  return __builtin_copysign(a > 6.0 ? 1.0 : (a < 1.0 ? small : large), x);
}

/// (asin(s) - s) / s for z = s^2 <= 1/4
TRIAGE_INLINE double arc_sine_beyond(double z) {
  return z * polynomial(z, 0x1.05ce62b947f30p-5, -0x1.0af4fdf48b5a4p-6, 0x1.40b207bf8d90ap-6, 0x1.aab35d004e2ccp-8,
                        0x1.8ee4b327802e5p-7, 0x1.c6f87b23dfdbcp-7, 0x1.1c6c27eb5b366p-6, 0x1.6e89ef75e431ap-6,
                        0x1.f1c72c6d86e87p-6, 0x1.6db6db41d2f17p-5, 0x1.333333336f8a7p-4, 0x1.5555555555387p-3);
}
/// (atan(t) - t) / t for z = t^2, |t| <= tan(pi / 8)
TRIAGE_INLINE double arc_tangent_beyond(double z) {
  return z * polynomial(z, -0x1.25a153e3bf20dp-6, 0x1.37ef14cdeba3ap-5, -0x1.9cdcddbce61a0p-5, 0x1.df118fbcbb9ccp-5,
                        -0x1.10ebe05c0c1a0p-4, 0x1.3b111ca1b7358p-4, -0x1.745cf90e8329fp-4, 0x1.c71c70e7c05f5p-4,
                        -0x1.24924922b16d2p-3, 0x1.99999999958f7p-3, -0x1.555555555553dp-2);
}

}  // namespace TRIAGE_SUPPORT
}  // namespace triage::fused
