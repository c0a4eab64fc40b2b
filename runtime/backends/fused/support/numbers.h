#pragma once
// What generated loops do with numbers. Every function is plain scalar code that vectorises inside a loop; NaN and Inf
// are told by the bits. This file is compiled into the program for the tests, and its text goes in front of every
// generated source.
#include <cstdint>

// Where these functions are compiled for several instruction sets, each has them under a name of its own: linkers keep
// one function of a name.
#ifndef TRIAGE_SUPPORT
#define TRIAGE_SUPPORT support
#endif

namespace triage::fused {
inline namespace TRIAGE_SUPPORT {

template <class To, class From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

inline bool is_nan(float x) { return (bits_as<uint32_t>(x) & 0x7FFFFFFFu) > 0x7F800000u; }
inline bool is_nan(double x) { return (bits_as<uint64_t>(x) & 0x7FFFFFFFFFFFFFFFu) > 0x7FF0000000000000u; }
inline bool is_inf(float x) { return (bits_as<uint32_t>(x) & 0x7FFFFFFFu) == 0x7F800000u; }
inline bool is_inf(double x) { return (bits_as<uint64_t>(x) & 0x7FFFFFFFFFFFFFFFu) == 0x7FF0000000000000u; }
inline bool is_finite(float x) { return (bits_as<uint32_t>(x) & 0x7FFFFFFFu) < 0x7F800000u; }
inline bool is_finite(double x) { return (bits_as<uint64_t>(x) & 0x7FFFFFFFFFFFFFFFu) < 0x7FF0000000000000u; }
template <class T>
inline bool is_nan(T) {
  return false;
}
template <class T>
inline bool is_inf(T) {
  return false;
}
template <class T>
inline bool is_finite(T) {
  return true;
}

/// The bits but for the sign, in which Inf is above all numbers and NaN above Inf. (Signed: what every processor
/// compares.)
inline int32_t magnitude_bits(float x) { return bits_as<int32_t>(x) & 0x7FFFFFFF; }
inline int64_t magnitude_bits(double x) { return bits_as<int64_t>(x) & 0x7FFFFFFFFFFFFFFF; }
/// Of the largest of them in a row: it has a NaN; it has an Inf and no NaN.
inline bool tells_nan(int32_t largest) { return largest > 0x7F800000; }
inline bool tells_nan(int64_t largest) { return largest > 0x7FF0000000000000; }
inline bool tells_inf(int32_t largest) { return largest == 0x7F800000; }
inline bool tells_inf(int64_t largest) { return largest == 0x7FF0000000000000; }

/// What a row holds.
struct NonFinite {
  bool nan, inf;
};

/// --- half precision: computed in float, rounded after each operation as ATen does ---
struct half {
  uint16_t bits;
};
struct bfloat16 {
  uint16_t bits;
};

inline float widen(half h) {
  const uint32_t sign = (h.bits & 0x8000u) << 16, magnitude = h.bits & 0x7FFFu;
  const uint32_t scaled = bits_as<uint32_t>(bits_as<float>(magnitude << 13) * 0x1p112f);  // subnormals too
  return bits_as<float>(sign | (magnitude >= 0x7C00u ? 0x7F800000u | magnitude << 13 : scaled));
}
inline float widen(bfloat16 b) { return bits_as<float>(static_cast<uint32_t>(b.bits) << 16); }
template <class T>
inline T widen(T x) {
  return x;
}

inline half to_half(float x) {
  const uint32_t all = bits_as<uint32_t>(x), sign = all & 0x80000000u, magnitude = all ^ sign;
  const uint32_t normal = (magnitude + 0xC8000FFFu + (magnitude >> 13 & 1u)) >> 13;  // rounds half to even
  const uint32_t small =
      bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3F000000u;  // the sum does the rounding
  const uint32_t large = magnitude > 0x7F800000u ? 0x7E00u : 0x7C00u;
  const uint32_t low = magnitude < 0x38800000u ? small : normal;
  return {static_cast<uint16_t>(sign >> 16 | (magnitude >= 0x477FF000u ? large : low))};
}
inline bfloat16 to_bfloat16(float x) {
  const uint32_t all = bits_as<uint32_t>(x);
  const uint32_t rounded = (all + 0x7FFFu + (all >> 16 & 1u)) >> 16;
  return {static_cast<uint16_t>((all & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded)};
}

/// A computed value as a tensor of that dtype would hold it.
inline float as_half(float x) { return widen(to_half(x)); }
inline float as_bfloat16(float x) { return widen(to_bfloat16(x)); }

/// `condition ? a : b` by the bits, for a condition that is the same for a whole row: as a branch it would end
/// vectorisation.
inline float pick(bool condition, float a, float b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return bits_as<float>((bits_as<uint32_t>(a) & mask) | (bits_as<uint32_t>(b) & ~mask));
}
inline double pick(bool condition, double a, double b) {
  const uint64_t mask = uint64_t{0} - static_cast<uint64_t>(condition);
  return bits_as<double>((bits_as<uint64_t>(a) & mask) | (bits_as<uint64_t>(b) & ~mask));
}
template <class T>
inline T pick(bool condition, T a, T b) {
  const T mask = static_cast<T>(T(0) - static_cast<T>(condition));
  return static_cast<T>((a & mask) | (b & static_cast<T>(~mask)));
}
inline bool pick(bool condition, bool a, bool b) { return (condition & a) | (!condition & b); }

#ifdef __aarch64__
/// A real number as a whole one, as ARM does it and ATen with it: what is beyond 32 (of float, for signed types) or 64
/// bits becomes the nearest number of so many, and NaN 0. Narrower types take the low bits of that.
template <class Whole, class Real>
inline Whole nearest_of(Real x) {
  constexpr Real end = sizeof(Whole) == 8 ? Real(0x1p63) : Real(0x1p31);  // the first beyond the largest
  constexpr Whole lowest = sizeof(Whole) == 8 ? static_cast<Whole>(INT64_MIN) : static_cast<Whole>(INT32_MIN);
  const bool inside = (x >= -end) & (x < end);
  const Whole outside = x >= end ? ~lowest : (x < -end ? lowest : 0);
  return inside ? static_cast<Whole>(inside ? x : Real(0)) : outside;
}
template <class T, class Real>
inline T truncated(Real x) {
  if constexpr (sizeof(T) == 8 || sizeof(Real) == 8 || static_cast<T>(-1) > T(0))
    return static_cast<T>(nearest_of<int64_t>(x));
  else
    return static_cast<T>(nearest_of<int32_t>(x));
}
#else
/// A real number as a whole one, as x86 does it and ATen with it: NaN and what is beyond 32 (64) bits become the lowest
/// number of so many, of which narrower ones are the last bits.
template <class T, class Real>
inline T truncated(Real x) {
  if constexpr (sizeof(T) == 8 || static_cast<T>(-1) > T(0)) {
    const bool inside = (x >= Real(-0x1p63)) & (x < Real(0x1p63));
    return static_cast<T>(inside ? static_cast<int64_t>(inside ? x : Real(0)) : INT64_MIN);
  } else {
    const bool inside = (x > Real(-0x1p31) - Real(sizeof(Real) == 8)) & (x < Real(0x1p31));
    return static_cast<T>(inside ? static_cast<int32_t>(inside ? x : Real(0)) : INT32_MIN);
  }
}
#endif

/// A whole number that comes of a real one, as a real one again. Compilers make one rounding of the two conversions,
/// which keeps the sign of a zero.
template <class Real, class T>
inline Real whole_as_real(T x) {
  return x == 0 ? Real(0) : static_cast<Real>(x);
}

/// --- elementwise operations with ATen's meaning where C++ has another ---
template <class T>
inline T maximum(T a, T b) {
  return a != a ? a : (b != b ? b : (a > b ? a : b));
}
template <class T>
inline T minimum(T a, T b) {
  return a != a ? a : (b != b ? b : (a < b ? a : b));
}
template <class T>
inline T at_least(T x, T low) {
  return (x < low) | (low != low) ? low : x;
}  // NaN stays
template <class T>
inline T at_most(T x, T high) {
  return (x > high) | (high != high) ? high : x;
}  // NaN stays
inline float sign_of(float x) { return __builtin_islessgreater(x, 0.0f) ? __builtin_copysignf(1.0f, x) : 0.0f; }
inline double sign_of(double x) { return (x < 0.0) | (x > 0.0) ? __builtin_copysign(1.0, x) : 0.0; }
template <class T>
inline T magnitude_of(T x) {
  return x < T(0) ? T(0) - x : x;
}
inline float magnitude_of(float x) { return __builtin_fabsf(x); }
inline double magnitude_of(double x) { return __builtin_fabs(x); }
inline float root(float x) { return __builtin_sqrtf(x); }
inline double root(double x) { return __builtin_sqrt(x); }
inline float floor_of(float x) { return __builtin_floorf(x); }
inline double floor_of(double x) { return __builtin_floor(x); }
inline float ceiling_of(float x) { return __builtin_ceilf(x); }
inline double ceiling_of(double x) { return __builtin_ceil(x); }
inline float whole_part_of(float x) { return __builtin_truncf(x); }
inline double whole_part_of(double x) { return __builtin_trunc(x); }
/// Half to even.
inline float nearest_whole(float x) { return __builtin_rintf(x); }
inline double nearest_whole(double x) { return __builtin_rint(x); }

}  // namespace TRIAGE_SUPPORT
}  // namespace triage::fused
