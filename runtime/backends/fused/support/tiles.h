#pragma once
// How loops give each lane a row (or a segment) of its own: short rows are turned into a tile, in which the values of
// all lanes at one position lie side by side. Lane l of position p stands at tile[p * tile_lanes + l].
#include "runtime/backends/fused/support/lanes.h"

namespace triage::fused {
inline namespace TRIAGE_SUPPORT {

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define TRIAGE_SHUFFLES 1
#endif
#endif

#ifdef TRIAGE_SHUFFLES
using FourOf4Bytes = VectorOf<uint32_t, 4>::type;
using TileOf4Bytes = VectorOf<uint32_t, tile_lanes>::type;

/// Of four vectors of 4 x 4 values, the k-th values of all go into the k-th: rows become positions, and back.
inline void turn(TileOf4Bytes (&v)[4]) {
  const TileOf4Bytes a = __builtin_shufflevector(v[0], v[1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29),
                     b = __builtin_shufflevector(v[0], v[1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15,
                                                 31),
                     c = __builtin_shufflevector(v[2], v[3], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29),
                     d = __builtin_shufflevector(v[2], v[3], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15,
                                                 31);
  v[0] = __builtin_shufflevector(a, c, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
  v[1] = __builtin_shufflevector(a, c, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  v[2] = __builtin_shufflevector(b, d, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
  v[3] = __builtin_shufflevector(b, d, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}

inline FourOf4Bytes four_at(const char* from) {
  FourOf4Bytes four;
  __builtin_memcpy(&four, from, sizeof(four));
  return four;
}

/// Four positions of tile_lanes rows, `pitch` bytes apart.
inline void turn_in(uint32_t* tile, const char* rows, int64_t pitch) {
  TileOf4Bytes v[4];
#pragma GCC unroll 4
  for (int64_t k = 0; k < 4; ++k) {
    const auto a =
        __builtin_shufflevector(four_at(rows + k * pitch), four_at(rows + (k + 4) * pitch), 0, 1, 2, 3, 4, 5, 6, 7);
    const auto b = __builtin_shufflevector(four_at(rows + (k + 8) * pitch), four_at(rows + (k + 12) * pitch), 0, 1, 2,
                                           3, 4, 5, 6, 7);
    v[k] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  turn(v);
  __builtin_memcpy(tile, v, sizeof(v));
}
inline void turn_out(char* rows, int64_t pitch, const uint32_t* tile) {
  TileOf4Bytes v[4];
  __builtin_memcpy(v, tile, sizeof(v));
  turn(v);
#pragma GCC unroll 4
  for (int64_t k = 0; k < 4; ++k) {
    const FourOf4Bytes a = __builtin_shufflevector(v[k], v[k], 0, 1, 2, 3),
                       b = __builtin_shufflevector(v[k], v[k], 4, 5, 6, 7),
                       c = __builtin_shufflevector(v[k], v[k], 8, 9, 10, 11),
                       d = __builtin_shufflevector(v[k], v[k], 12, 13, 14, 15);
    __builtin_memcpy(rows + k * pitch, &a, sizeof(a));
    __builtin_memcpy(rows + (k + 4) * pitch, &b, sizeof(b));
    __builtin_memcpy(rows + (k + 8) * pitch, &c, sizeof(c));
    __builtin_memcpy(rows + (k + 12) * pitch, &d, sizeof(d));
  }
}
#endif

/// A tile of the first `used` of tile_lanes rows, which lie `pitch` bytes apart. What other lanes hold is unspecified.
template <class T>
inline void rows_to_lanes(T* tile, const T* rows, int64_t pitch, int64_t positions, int32_t used) {
  const char* const memory = reinterpret_cast<const char*>(rows);
  int64_t p = 0;
#ifdef TRIAGE_SHUFFLES
  if constexpr (sizeof(T) == 4)
    if (used == tile_lanes)
      for (; p + 4 <= positions; p += 4)
        turn_in(reinterpret_cast<uint32_t*>(tile + p * tile_lanes), memory + p * 4, pitch);
#endif
  for (; p < positions; ++p)
    for (int32_t lane = 0; lane < used; ++lane)
      __builtin_memcpy(tile + p * tile_lanes + lane, memory + lane * pitch + p * sizeof(T), sizeof(T));
}

/// The first `used` lanes of a tile as rows without gaps.
template <class T>
inline void lanes_to_rows(T* rows, const T* tile, int64_t positions, int32_t used) {
  int64_t p = 0;
#ifdef TRIAGE_SHUFFLES
  if constexpr (sizeof(T) == 4)
    if (used == tile_lanes)
      for (; p + 4 <= positions; p += 4)
        turn_out(reinterpret_cast<char*>(rows + p), positions * 4,
                 reinterpret_cast<const uint32_t*>(tile + p * tile_lanes));
#endif
  for (; p < positions; ++p)
    for (int32_t lane = 0; lane < used; ++lane) rows[lane * positions + p] = tile[p * tile_lanes + lane];
}

}  // namespace TRIAGE_SUPPORT
}  // namespace triage::fused
