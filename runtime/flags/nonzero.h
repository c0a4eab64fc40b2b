#pragma once
// Where memory is not zero. Most flags, masks and codes are zero nearly everywhere: kernels look for the rest 64 places at a
// time, as one bit a place, and change only that.
#include <runtime/flags/scan.h>

#include <algorithm>
#include <bit>

namespace triage::flags::cpu {
namespace loops {

inline constexpr int64_t PLACES = 64;  // looked at together

template <class Visit>
TRIAGE_INLINE void each_bit(uint64_t bits, int64_t first, const Visit& visit) {
  for (; bits; bits &= bits - 1) visit(first + std::countr_zero(bits));
}

// Which of 64 words of four slots are not zero. Each lane of the comparisons sets bits of its own, so that nothing leaves its
// vector before the end.
template <int bytes>
TRIAGE_INLINE uint64_t nonzero_words(const uint16_t* slots) {
  typedef uint64_t Vector __attribute__((vector_size(bytes)));
  typedef uint64_t Unaligned __attribute__((vector_size(bytes), aligned(2), may_alias));
  constexpr int lanes = bytes / 8;
  if constexpr (bytes == 16) {  // the plainest machine has no comparison of words so wide
    if (!Dense<HasAny>{}.template run<bytes>(reinterpret_cast<const uint32_t*>(slots), PLACES * 2)) return 0;
  }
  static constexpr uint64_t bit_of_lane[] = {1, 2, 4, 8, 16, 32, 64, 128};
  Vector bits, found = {};
  std::memcpy(&bits, bit_of_lane, sizeof(bits));
  const Unaligned* from = reinterpret_cast<const Unaligned*>(slots);  // never as `auto`, which forgets the attributes
#pragma GCC unroll 32
  for (int i = 0; i < PLACES / lanes; ++i)
    found |= static_cast<Vector>(static_cast<Vector>(from[i]) != 0) & bits << (i * lanes);
  return folded<bytes>(AnyOf<uint64_t>{}, found);
}

template <class Visit>
struct NonZeroWords {
  Visit visit;
  template <int bytes>
  TRIAGE_INLINE void run(const uint16_t* slots, int64_t count) const {
    constexpr int64_t together = PLACES * 4;
    uint16_t rest[together];
    for (int64_t first = 0; first < count; first += together) {
      const uint16_t* from = slots + first;
      if (count - first < together) {
        std::memset(rest, 0, sizeof(rest));
        from = static_cast<uint16_t*>(std::memcpy(rest, from, static_cast<size_t>(count - first) * sizeof(uint16_t)));
      }
      each_bit(nonzero_words<bytes>(from), first / 4, visit);
    }
  }
};

// Which of 64 bytes are not zero. A multiplication brings the lowest bits of eight bytes together.
TRIAGE_INLINE uint64_t nonzero_bytes(const uint8_t* bytes) {
  constexpr uint64_t each = 0x0101'0101'0101'0101, low = each * 0x7F;
  uint64_t eights[8], any = 0, bits = 0;
  std::memcpy(eights, bytes, sizeof(eights));
#pragma GCC unroll 8
  for (const uint64_t eight : eights) any |= eight;
  if (!any) return 0;
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const uint64_t marks = (((eights[i] & low) + low) | eights[i]) >> 7 & each;
    bits |= (marks * 0x0102'0408'1020'4080 >> 56) << (8 * i);
  }
  return bits;
}

template <class T, class Visit>
struct NonZeroValues {
  Visit visit;
  template <int>
  TRIAGE_INLINE void run(const T* values, int64_t step, int64_t count) const {
    for (int64_t first = 0; first < count; first += PLACES) {
      const T* from = values + first * step;
      const int64_t some = std::min(PLACES, count - first);
      if (sizeof(T) == 1 && step == 1 && some == PLACES) {
        each_bit(nonzero_bytes(reinterpret_cast<const uint8_t*>(from)), first, visit);
        continue;
      }
      uint8_t marks[PLACES] = {};
      if (step == 1) {
#pragma omp simd
        for (int64_t i = 0; i < some; ++i) marks[i] = from[i] != 0;
      } else {
        for (int64_t i = 0; i < some; ++i) marks[i] = from[i * step] != 0;
      }
      each_bit(nonzero_bytes(marks), first, visit);
    }
  }
};

}  // namespace loops

/// Calls visit(index) for each word of four slots that is not all zero, first to last; the last one may be short.
template <class Visit>
void each_nonzero_word(const uint16_t* slots, int64_t count, const Visit& visit) {
  on_this_machine(loops::NonZeroWords<const Visit&>{visit}, slots, count);
}

/// Calls visit(index) for each of `count` values, `step` apart, that is not 0.
template <class T, class Visit>
void each_nonzero(const T* values, int64_t step, int64_t count, const Visit& visit) {
  on_this_machine(loops::NonZeroValues<T, const Visit&>{visit}, values, step, count);
}

}  // namespace triage::flags::cpu
