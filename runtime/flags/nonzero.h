#pragma once
// Where memory is not zero. Most flags, masks and codes are zero nearly everywhere: kernels look for the rest 64 places at a
// time, one bit a place, and change only that.
#include <runtime/flags/scan.h>

#include <algorithm>
#include <bit>
#include <type_traits>

namespace triage::flags::cpu {

/// Some places of a stretch of memory.
class Places {
 public:
  static constexpr int64_t MOST = 8192, TOGETHER = 64;

  /// Calls visit(index) for each place, first to last.
  template <class Visit>
  void each(Visit visit) const {
    for (int64_t i = 0; i * TOGETHER < count; ++i) {
      for (uint64_t some = bits[i]; some; some &= some - 1) visit(i * TOGETHER + std::countr_zero(some));
    }
  }

  uint64_t bits[MOST / TOGETHER];
  int64_t count = 0;  // places looked at
  int64_t found = 0;  // how many there are, of words
};

namespace loops {

// Which of 64 words are not zero; each is given to also(index of a vector, vector) on the way. Each lane of the comparisons
// sets bits of its own, as many as it has, so that nothing leaves its vector before the end.
template <int bytes, class Word, class Also>
TRIAGE_INLINE uint64_t nonzero_words(const Word* words, Also also) {
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
  for (int first = 0; first < Places::TOGETHER; first += part) {
    Vector found = {};
#pragma GCC unroll 32
    for (int i = 0; i < part; i += lanes) {
      also((first + i) / lanes);
      found |= static_cast<Vector>(static_cast<Vector>(from[(first + i) / lanes]) != 0) & bits << i;
    }
    result |= uint64_t{folded<bytes>(AnyOf<Word>{}, found)} << first;
  }
  return result;
}

// Which words of four slots are not zero, and how many; as many slots are copied on the way, where there is something to copy:
// from one place after the other (step 1), or the same 256 over and over (step 0).
struct NonZeroWords {
  template <int bytes>
  TRIAGE_INLINE int64_t run(const uint16_t* slots, int64_t count, const uint16_t* from, int64_t step, uint16_t* to,
                            uint64_t* bits) const {
    typedef uint64_t Unaligned __attribute__((vector_size(bytes), aligned(2), may_alias));
    constexpr int64_t together = Places::TOGETHER * 4;
    uint16_t rest[together];
    int64_t found = 0;
    for (int64_t first = 0; first < count; first += together) {
      const bool whole = count - first >= together;
      const uint16_t* some = slots + first;
      if (!whole) {
        const size_t size = static_cast<size_t>(count - first) * sizeof(uint16_t);
        std::memset(rest, 0, sizeof(rest));
        std::memcpy(rest, some, size);
        if (to) std::memcpy(to + first, from + first * step, size);
        some = rest;
      }
      const auto* words = reinterpret_cast<const uint64_t*>(some);
      if (whole && to) {
        const Unaligned* here = reinterpret_cast<const Unaligned*>(from + first * step);
        Unaligned* there = reinterpret_cast<Unaligned*>(to + first);
        *bits++ = nonzero_words<bytes>(words, [=](int i) TRIAGE_INLINE_LAMBDA { there[i] = here[i]; });
      } else {
        *bits++ = nonzero_words<bytes>(words, [](int) TRIAGE_INLINE_LAMBDA {});
      }
      found += std::popcount(bits[-1]);  // one instruction in all builds but the plain one
    }
    return found;
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
  TRIAGE_INLINE void run(const T* values, int64_t step, int64_t count, uint64_t* bits) const {
    constexpr int64_t together = Places::TOGETHER;
    T rest[together];
    for (int64_t first = 0; first < count; first += together) {
      const int64_t some = std::min(together, count - first);
      const T* from = values + first * step;
      if (step != 1 || some < together) {
        std::memset(rest, 0, sizeof(rest));
        if (step == 1) std::memcpy(rest, from, static_cast<size_t>(some) * sizeof(T));
        for (int64_t i = 0; i < some && step != 1; ++i) rest[i] = from[i * step];
        from = rest;
      }
      *bits++ = nonzero<bytes>(from);
    }
  }

 private:
  template <int bytes>
  TRIAGE_INLINE uint64_t nonzero(const T* values) const {
    if constexpr (sizeof(T) >= 4) {
      return nonzero_words<bytes>(reinterpret_cast<const std::make_unsigned_t<T>*>(values),
                                  [](int) TRIAGE_INLINE_LAMBDA {});
    } else if constexpr (sizeof(T) == 1) {
      return nonzero_bytes(reinterpret_cast<const uint8_t*>(values));
    } else {
      uint8_t marks[Places::TOGETHER];
#pragma omp simd
      for (int64_t i = 0; i < Places::TOGETHER; ++i) marks[i] = values[i] != 0;
      return nonzero_bytes(marks);
    }
  }
};

}  // namespace loops

/// The words of four slots that are not all zero among `count` slots; the last word may be short. Where `to` is given, copies
/// as many slots from `from` to it, in the same pass; with step 0 the same 256 slots over and over.
inline void find_words(Places& places, const uint16_t* slots, int64_t count, const uint16_t* from = nullptr,
                       uint16_t* to = nullptr, int64_t step = 1) {
  places.count = (count + 3) / 4;
  places.found =
      on_this_machine(loops::NonZeroWords{}, slots, count, from, step, to, static_cast<uint64_t*>(places.bits));
}

/// Which of `count` values, `step` apart, are not 0.
template <class T>
void find_values(Places& places, const T* values, int64_t step, int64_t count) {
  places.count = count;
  on_this_machine(loops::NonZeroValues<T>{}, values, step, count, static_cast<uint64_t*>(places.bits));
}

}  // namespace triage::flags::cpu
