#pragma once
// Where memory is not zero. Most flags, masks and codes are zero nearly everywhere: kernels look for the rest 64 places
// at a time, one bit a place, and change only that.
#include <runtime/flags/kernels/scan.h>

#include <algorithm>
#include <bit>
#include <type_traits>

namespace triage::flags::cpu {

/// Some places of a stretch of memory. Of every 64 that were looked at, those are kept that have some: what goes
/// through them is not led by bits that are as good as random.
struct NonzeroPlaces {
  static constexpr int64_t MOST = 8192, TOGETHER = 64;

  /// Calls visit(index) for each place, first to last.
  template <class Visit>
  void each(Visit visit) const {
    for (int64_t i = 0; i < filled; ++i) {
      for (uint64_t some = bits[i]; some; some &= some - 1) visit(at[i] * TOGETHER + std::countr_zero(some));
    }
  }

  uint64_t bits[MOST / TOGETHER];  // never 0
  uint8_t at[MOST / TOGETHER];     // bits[i] are of the 64 places from 64 * at[i]
  int64_t filled = 0, found = 0;   // words in `bits`, places in all
};

namespace loops {

// Which of 64 words are not zero. Each lane of the comparisons sets bits of its own, as many as it has, so that nothing
// leaves its vector before the end.
template <int bytes, class Word>
TRIAGE_INLINE uint64_t nonzero_words(const Word* words) {
  typedef Word Vector __attribute__((vector_size(bytes)));
  typedef Word Unaligned __attribute__((vector_size(bytes), aligned(2), may_alias));
  constexpr int lanes = bytes / sizeof(Word), part = 8 * sizeof(Word);
  static constexpr Word bit_of_lane[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
  static_assert(lanes <= 16 && lanes <= part);
  const Unaligned* from = reinterpret_cast<const Unaligned*>(words);  // never as `auto`, which forgets the attributes
  Vector bits;
  std::memcpy(&bits, bit_of_lane, sizeof(bits));
  uint64_t result = 0;
#pragma GCC unroll 2
  for (int first = 0; first < NonzeroPlaces::TOGETHER; first += part) {
    Vector found = {};
#pragma GCC unroll 32
    for (int i = 0; i < part; i += lanes)
      found |= static_cast<Vector>(static_cast<Vector>(from[(first + i) / lanes]) != 0) & bits << i;
    result |= uint64_t{folded<bytes>(AnyOf<Word>{}, found)} << first;
  }
  return result;
}

// What is not zero among `count` values, `together` of which are 64 places: bits_from(first) tells which of those are
// not.
template <class BitsFrom>
TRIAGE_INLINE void fill_places(NonzeroPlaces* places, int64_t count, int64_t together, const BitsFrom& bits_from) {
  int64_t filled = 0, found = 0;
  for (int64_t first = 0; first < count; first += together) {
    const uint64_t bits = bits_from(first);
    places->bits[filled] = bits;
    places->at[filled] = static_cast<uint8_t>(first / together);
    filled += bits != 0;
    found += std::popcount(bits);  // one instruction in all builds but the plain one
  }
  places->filled = filled;
  places->found = found;
}

// Which words of four slots are not zero.
struct NonZeroWords {
  template <int bytes>
  TRIAGE_INLINE void run(const uint16_t* slots, int64_t count, NonzeroPlaces* places) const {
    constexpr int64_t together = NonzeroPlaces::TOGETHER * 4;
    uint16_t rest[together];
    fill_places(places, count, together, [&](int64_t first) TRIAGE_INLINE_LAMBDA {
      const uint16_t* some = slots + first;
      if (count - first < together) {
        std::memset(rest, 0, sizeof(rest));
        std::memcpy(rest, some, static_cast<size_t>(count - first) * sizeof(uint16_t));
        some = rest;
      }
      return nonzero_words<bytes>(reinterpret_cast<const uint64_t*>(some));
    });
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

template <class T>
struct NonZeroValues {
  template <int bytes>
  TRIAGE_INLINE void run(const T* values, int64_t step, int64_t count, NonzeroPlaces* places) const {
    constexpr int64_t together = NonzeroPlaces::TOGETHER;
    T rest[together];
    fill_places(places, count, together, [&](int64_t first) TRIAGE_INLINE_LAMBDA {
      const int64_t some = std::min(together, count - first);
      const T* from = values + first * step;
      if (step != 1 || some < together) {
        std::memset(rest, 0, sizeof(rest));
        if (step == 1) std::memcpy(rest, from, static_cast<size_t>(some) * sizeof(T));
        for (int64_t i = 0; i < some && step != 1; ++i) rest[i] = from[i * step];
        from = rest;
      }
      return nonzero<bytes>(from);
    });
  }

 private:
  template <int bytes>
  TRIAGE_INLINE uint64_t nonzero(const T* values) const {
    if constexpr (sizeof(T) >= 4) {
      return nonzero_words<bytes>(reinterpret_cast<const std::make_unsigned_t<T>*>(values));
    } else if constexpr (sizeof(T) == 1) {
      return nonzero_bytes(reinterpret_cast<const uint8_t*>(values));
    } else {
      uint8_t marks[NonzeroPlaces::TOGETHER];
#pragma omp simd
      for (int64_t i = 0; i < NonzeroPlaces::TOGETHER; ++i) marks[i] = values[i] != 0;
      return nonzero_bytes(marks);
    }
  }
};

}  // namespace loops

/// The words of four slots that are not all zero among `count` slots; the last word may be short.
inline void find_words(NonzeroPlaces& places, const uint16_t* slots, int64_t count) {
  on_this_machine(loops::NonZeroWords{}, slots, count, &places);
}

/// Which of `count` values, `step` apart, are not 0.
template <class T>
void find_values(NonzeroPlaces& places, const T* values, int64_t step, int64_t count) {
  on_this_machine(loops::NonZeroValues<T>{}, values, step, count, &places);
}

}  // namespace triage::flags::cpu
