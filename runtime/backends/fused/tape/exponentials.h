#pragma once
// e^x of many floats, for the primitives of one instruction set. The formula, and every bit, is that of `exponential`
// (support/transcendental_float.h); instructions that compilers do not make of it take half the time.
#include <cstdint>

#include "runtime/backends/fused/support/transcendental.h"

#ifdef __AVX2__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105593
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace triage::fused {
inline namespace TRIAGE_SUPPORT {

#ifdef __AVX2__

struct Floats {
#ifdef __AVX512F__
  using Vector = __m512;
#else
  using Vector = __m256;
#endif
  static constexpr int64_t count = sizeof(Vector) / sizeof(float);
  Vector v;
  TRIAGE_INLINE static Floats at(const float* from) {
    Floats all;
    __builtin_memcpy(&all, from, sizeof(all));
    return all;
  }
  TRIAGE_INLINE static Floats all(float x) { return {Vector{} + x}; }
};
TRIAGE_INLINE Floats operator+(Floats a, Floats b) { return {a.v + b.v}; }
TRIAGE_INLINE Floats operator+(Floats a, float b) { return {a.v + b}; }
TRIAGE_INLINE Floats operator-(Floats a, Floats b) { return {a.v - b.v}; }
TRIAGE_INLINE Floats operator*(Floats a, Floats b) { return {a.v * b.v}; }

#ifdef __AVX512F__

TRIAGE_INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
/// A NaN stays: it is the second operand.
TRIAGE_INLINE Floats between(float low, float high, Floats x) {
  return {_mm512_min_ps(Floats::all(high).v, _mm512_max_ps(Floats::all(low).v, x.v))};
}
TRIAGE_INLINE Floats exponential(Floats of) {
  const Floats x = between(-104.0f, 89.0f, of), rounder = Floats::all(rounder_of_floats);
  const Floats n = multiply_add(x, Floats::all(1.44269504088896341f), rounder) - rounder;
  const Floats r = multiply_add(n, Floats::all(2.12194440e-4f), multiply_add(n, Floats::all(-0.693359375f), x));
  return {_mm512_scalef_ps((small_exponential_minus_one(r) + 1.0f).v, n.v)};  // rounds once, as `scaled` does
}

#else

TRIAGE_INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
TRIAGE_INLINE Floats between(float low, float high, Floats x) {
  return {_mm256_min_ps(Floats::all(high).v, _mm256_max_ps(Floats::all(low).v, x.v))};
}
TRIAGE_INLINE Floats by_sign_of(Floats x, float negative, float positive) {
  return {_mm256_blendv_ps(Floats::all(positive).v, Floats::all(negative).v, x.v)};
}
/// 2^n (1 + m) is made in the exponent of 1 + m, which does not hold subnormal numbers, nor what is beyond the largest
/// one. So it is 2^24 times the result of a negative x, and half of others; then one multiplication rounds. The rounder
/// brings the offset, and a zero made of x keeps its NaN.
TRIAGE_INLINE Floats exponential(Floats of) {
  const Floats x = between(-104.0f, 89.0f, of), rounder = by_sign_of(x, rounder_of_floats + 24, rounder_of_floats - 1);
  const Floats shifted = multiply_add(x, Floats::all(1.44269504088896341f), rounder), n = shifted - rounder;
  const Floats r = multiply_add(n, Floats::all(2.12194440e-4f), multiply_add(n, Floats::all(-0.693359375f), x));
  const auto exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted.v), 23);
  const auto made = _mm256_castps_si256((small_exponential_minus_one(r) + 1.0f).v);
  return multiply_add({_mm256_castsi256_ps(_mm256_add_epi32(made, exponent))}, by_sign_of(x, 0x1p-24f, 2.0f),
                      x * Floats::all(0.0f));
}

#endif
#endif

/// Of `n` values, which may lie where the results go.
TRIAGE_INLINE void exponentials(float* out, const float* x, int64_t n) {
  int64_t first = 0;
#ifdef __AVX2__
  for (; first + Floats::count <= n; first += Floats::count) {
    const Floats e = exponential(Floats::at(x + first));
    __builtin_memcpy(out + first, &e, sizeof(e));
  }
#endif
#pragma omp simd
  for (int64_t i = first; i < n; ++i) out[i] = exponential(x[i]);
}

}  // namespace TRIAGE_SUPPORT
}  // namespace triage::fused
