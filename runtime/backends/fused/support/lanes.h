#pragma once
// How loops bring values into lanes and lanes together (joins.h), as vectors.
#include "runtime/backends/fused/support/joins.h"

namespace triage::fused {
inline namespace TRIAGE_SUPPORT {

/// So many rows (or segments) go side by side where they are short, each in a lane of its own (tiles.h).
inline constexpr int64_t tile_lanes = 16;
/// The block of positions there, of which each lane goes through all by itself.
inline constexpr int64_t segment_block_positions = 64;

template <class T, int64_t count>
struct VectorOf {
  typedef T type __attribute__((vector_size(count * sizeof(T))));  // NOLINT: `using` does not take the attribute
};

/// Brings what lane_count values occupy, `bytes` away from `at`, into the first cache. (A call would have no effect
/// that compilers see, and be left out.)
template <class T>
[[gnu::always_inline]] inline void fetch_to_read(const T* at, int64_t bytes) {
#pragma GCC unroll 8
  for (uint64_t line = 0; line < lane_count * sizeof(T); line += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(at) + bytes + line, 0);
}
template <class T>
[[gnu::always_inline]] inline void fetch_to_write(const T* at, int64_t bytes) {
#pragma GCC unroll 8
  for (uint64_t line = 0; line < lane_count * sizeof(T); line += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(at) + bytes + line, 1);
}

#if defined(__AVX512F__)
inline constexpr int64_t vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr int64_t vector_bytes = 32;
#else
inline constexpr int64_t vector_bytes = 16;
#endif

/// What the lanes of a register come to, by halves.
template <class Join, int64_t count, class T>
[[gnu::always_inline]] inline T joined_register(typename VectorOf<T, count>::type lanes) {
  if constexpr (count == 1) {
    return lanes[0];
  } else {
    typename VectorOf<T, count / 2>::type low, high;
    __builtin_memcpy(&low, &lanes, sizeof(low));
    __builtin_memcpy(&high, reinterpret_cast<const char*>(&lanes) + sizeof(low), sizeof(high));
    Join::join(low, high);
    return joined_register<Join, count / 2, T>(low);
  }
}

/// What `count` lanes, a power of two, come to. They are overwritten: by halves in memory, until a register holds what
/// is left.
template <class Join, int64_t count = lane_count, class T>
inline T joined(T* lanes) {
  constexpr int64_t in_register = vector_bytes / static_cast<int64_t>(sizeof(T));
  if constexpr (count <= in_register) {
    typename VectorOf<T, count>::type all;
    __builtin_memcpy(&all, lanes, sizeof(all));
    return joined_register<Join, count, T>(all);
  } else {
    using Vector = typename VectorOf<T, in_register>::type;
#pragma GCC unroll 8
    for (int64_t i = 0; i < count / 2; i += in_register) {
      Vector low, high;
      __builtin_memcpy(&low, lanes + i, sizeof(low));
      __builtin_memcpy(&high, lanes + count / 2 + i, sizeof(high));
      Join::join(low, high);
      __builtin_memcpy(lanes + i, &low, sizeof(low));
    }
    return joined<Join, count / 2>(lanes);
  }
}

/// The same of lanes of which only the first `used` hold more than the join begins with.
template <class Join, class T>
inline T joined(T* lanes, int64_t used) {
  return used <= 16 ? joined<Join, 16>(lanes) : joined<Join>(lanes);
}

}  // namespace TRIAGE_SUPPORT
}  // namespace triage::fused
