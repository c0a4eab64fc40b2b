#pragma once
// What the bits of floats tell of all of them: the smallest and the largest number, the largest magnitude, and whether
// there is a NaN or an Inf. That takes three comparisons of whole numbers a value, in whatever order, and is exact.
#include "runtime/backends/fused/support/lanes.h"

namespace triage::fused {
inline namespace TRIAGE_SUPPORT {

/// Of the bits of some floats. As unsigned numbers, bits with a sign are above those without, and rise with the
/// distance from 0.
struct Edges {
  int32_t highest = INT32_MIN;  // the largest of them as signed numbers: of a float without a sign, where there is one
  uint32_t farthest = 0;        // the largest as unsigned ones: of the smallest float, where one has a sign
  uint32_t nearest = UINT32_MAX;  // the smallest as unsigned ones: the end that the other two do not tell

  bool has_sign() const { return farthest > INT32_MAX; }
  bool has_nan() const { return (highest > 0x7F800000) | (farthest > 0xFF800000u); }
  /// Where there is no NaN.
  float smallest() const { return bits_as<float>(has_sign() ? farthest : nearest); }
  float largest() const { return bits_as<float>(highest >= 0 ? static_cast<uint32_t>(highest) : nearest); }

  /// The largest of magnitude_bits.
  int32_t magnitude() const {
    const int32_t signed_one = has_sign() ? static_cast<int32_t>(farthest & INT32_MAX) : INT32_MIN;
    return highest > signed_one ? highest : signed_one;
  }
  bool not_finite() const { return magnitude() >= 0x7F800000; }
  /// Whether a float is not at least, or at most, the bound. There may be none.
  bool below(float bound) const { return (nearest <= farthest) & (has_nan() | (smallest() >= bound ? 0 : 1)); }
  bool above(float bound) const { return (nearest <= farthest) & (has_nan() | (largest() <= bound ? 0 : 1)); }
};

/// Lanes find edges, or what is less and takes fewer instructions, of vectors of floats.
struct EdgeLanes {
  static constexpr int64_t count = vector_bytes / 4;
  typedef float Floats __attribute__((vector_size(vector_bytes), aligned(4), may_alias));  // NOLINT: as in lanes.h
  using Whole = typename VectorOf<int32_t, count>::type;
  using Bits = typename VectorOf<uint32_t, count>::type;

  /// (A memcpy of them is made of halves by some compilers.)
  [[gnu::always_inline]] static Floats at(const float* from) { return *reinterpret_cast<const Floats*>(from); }
  [[gnu::always_inline]] static void put(float* to, Floats floats) { *reinterpret_cast<Floats*>(to) = floats; }
  /// The first `n` of a vector, at least one, the first of them in the place of the others.
  [[gnu::always_inline]] static Floats some_at(const float* from, int64_t n) {
    float all[count];
    for (int64_t i = 0; i < count; ++i) all[i] = from[i < n ? i : 0];
    return at(all);
  }
};

struct AllEdges {
  EdgeLanes::Whole highest = EdgeLanes::Whole{} + INT32_MIN;
  EdgeLanes::Bits farthest{};
  EdgeLanes::Bits nearest = EdgeLanes::Bits{} + UINT32_MAX;

  [[gnu::always_inline]] void join(EdgeLanes::Floats floats) {
    Largest::join(highest, (EdgeLanes::Whole)floats);
    Largest::join(farthest, (EdgeLanes::Bits)floats);
    Smallest::join(nearest, (EdgeLanes::Bits)floats);
  }
  [[gnu::always_inline]] void join(const AllEdges& other) {
    Largest::join(highest, other.highest);
    Largest::join(farthest, other.farthest);
    Smallest::join(nearest, other.nearest);
  }
  [[gnu::always_inline]] Edges edges() const {
    return {joined_register<Largest, EdgeLanes::count, int32_t>(highest),
            joined_register<Largest, EdgeLanes::count, uint32_t>(farthest),
            joined_register<Smallest, EdgeLanes::count, uint32_t>(nearest)};
  }
};

/// Of floats from 0 to a bound.
struct FarEdge {
  EdgeLanes::Bits farthest{};

  [[gnu::always_inline]] void join(EdgeLanes::Floats floats) { Largest::join(farthest, (EdgeLanes::Bits)floats); }
  [[gnu::always_inline]] void join(const FarEdge& other) { Largest::join(farthest, other.farthest); }
  /// Edges that no float is beyond; those of a NaN where one has a sign.
  [[gnu::always_inline]] Edges edges() const {
    const uint32_t far = joined_register<Largest, EdgeLanes::count, uint32_t>(farthest);
    return far > INT32_MAX ? Edges{INT32_MAX, far, 0} : Edges{static_cast<int32_t>(far), far, 0};
  }
};

}  // namespace TRIAGE_SUPPORT
}  // namespace triage::fused
