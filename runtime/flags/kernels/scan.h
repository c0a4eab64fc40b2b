#pragma once
// The inner loops of detection: is there anything wrong in this stretch of memory? NaN and Inf are told by integer
// arithmetic on the bits, so that the loops vectorise without -ffast-math.
#include <runtime/flags/kernels/isa.h>

#include <cstdint>
#include <cstring>

namespace triage::flags::cpu {

/// Marks floats whose exponent is all ones. `exponent` is the mask of a format's exponent bits: adding the lowest of
/// them carries into the sign bit exactly when all are set. `add` takes one word, or a vector of them.
template <class Bits, uint64_t exponent>
struct NonFiniteProbe {
  using Word = Bits;
  static constexpr auto mask = static_cast<Bits>(exponent);
  static constexpr auto carry = static_cast<Bits>(exponent & (~exponent + 1));
  template <class T>
  TRIAGE_INLINE void add(T& marks, const T& bits) const {
    marks = static_cast<T>(marks | static_cast<T>(static_cast<T>(bits & mask) + carry));
  }
  template <class T>
  TRIAGE_INLINE void join(T& marks, const T& more) const {
    marks = static_cast<T>(marks | more);
  }
  bool marked(Bits marks) const { return marks >> (8 * sizeof(Bits) - 1) != 0; }
};

/// Marks integers outside 0 .. limit-1, seen as unsigned: negative ones are large. What is kept is the largest.
template <class Bits>
struct AtLeast {
  using Word = Bits;
  Bits limit;
  template <class T>
  TRIAGE_INLINE void add(T& marks, const T& bits) const {
    marks = bits > marks ? bits : marks;
  }
  template <class T>
  TRIAGE_INLINE void join(T& marks, const T& more) const {
    add(marks, more);
  }
  bool marked(Bits marks) const { return marks >= limit; }
};

/// Marks what has any of these bits.
template <class Bits>
struct AnyOf {
  using Word = Bits;
  Bits mask = static_cast<Bits>(~Bits{0});
  template <class T>
  TRIAGE_INLINE void add(T& marks, const T& bits) const {
    marks |= bits;
  }
  template <class T>
  TRIAGE_INLINE void join(T& marks, const T& more) const {
    marks |= more;
  }
  bool marked(Bits marks) const { return (marks & mask) != 0; }
};
using HasAny = AnyOf<uint32_t>;

/// What a stretch of floats holds.
struct FloatClasses {
  bool nan = false;
  bool inf = false;
};

namespace loops {

// The marks of all lanes of a vector in one.
template <int bytes, class Probe, class Vector, class Word = typename Probe::Word>
TRIAGE_INLINE Word folded(const Probe& probe, const Vector& marks) {
  if constexpr (bytes == sizeof(Word)) {
    Word one;
    std::memcpy(&one, &marks, sizeof(Word));
    return one;
  } else {
    typedef Word Half __attribute__((vector_size(bytes / 2)));
    Half halves[2];
    std::memcpy(halves, &marks, bytes);
    probe.join(halves[0], halves[1]);
    return folded<bytes / 2>(probe, halves[0]);
  }
}

// Vectors of `bytes` bytes, of which four are in flight: one accumulator would be a chain that waits for itself.
template <class Probe, class Word = typename Probe::Word>
struct Dense {
  Probe probe;
  template <int bytes>
  TRIAGE_INLINE Word run(const Word* data, int64_t count) const {
    typedef Word Vector __attribute__((vector_size(bytes)));
    typedef Word Unaligned __attribute__((vector_size(bytes), aligned(2), may_alias));
    constexpr int64_t lanes = bytes / static_cast<int64_t>(sizeof(Word));
    Vector a = {}, b = {}, c = {}, d = {};
    int64_t i = 0;
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
      const auto* from = reinterpret_cast<const Unaligned*>(data + i);
      probe.add(a, static_cast<Vector>(from[0]));
      probe.add(b, static_cast<Vector>(from[1]));
      probe.add(c, static_cast<Vector>(from[2]));
      probe.add(d, static_cast<Vector>(from[3]));
    }
    for (; i + lanes <= count; i += lanes)
      probe.add(a, static_cast<Vector>(*reinterpret_cast<const Unaligned*>(data + i)));
    probe.join(a, b);
    probe.join(c, d);
    probe.join(a, c);
    Word marks = folded<bytes>(probe, a);
    for (; i < count; ++i) {
      Word bits;
      std::memcpy(&bits, data + i, sizeof(Word));
      probe.add(marks, bits);
    }
    return marks;
  }
};

template <class Bits, uint64_t exponent>
struct Classify {
  template <int>
  TRIAGE_INLINE FloatClasses run(const Bits* data, int64_t count) const {
    constexpr auto infinity = static_cast<Bits>(exponent);
    constexpr auto magnitude = static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1);
    Bits nan = 0;
    Bits inf = 0;
#pragma omp simd reduction(| : nan, inf)
    for (int64_t i = 0; i < count; ++i) {
      const auto bits = static_cast<Bits>(data[i] & magnitude);
      nan = static_cast<Bits>(nan | (bits > infinity));
      inf = static_cast<Bits>(inf | (bits == infinity));
    }
    return {nan != 0, inf != 0};
  }
};

template <class Probe, class Word = typename Probe::Word>
struct Columns {
  Probe probe;
  template <int>
  TRIAGE_INLINE void run(const Word* data, Word* marks, int64_t count) const {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) probe.add(marks[i], data[i]);
  }
};

}  // namespace loops

/// Is anything marked among `count` elements from `data`?
template <class Probe, class Word = typename Probe::Word>
bool scan_dense(const Probe& probe, const Word* data, int64_t count) {
  return probe.marked(on_this_machine(loops::Dense<Probe>{probe}, data, count));
}

/// Adds the marks of `count` elements, one to each of `marks`.
template <class Probe, class Word = typename Probe::Word>
void scan_columns(const Probe& probe, const Word* data, Word* marks, int64_t count) {
  on_this_machine(loops::Columns<Probe>{probe}, data, marks, count);
}

/// NaN or Inf among `count` elements from `data`?
template <class Bits, uint64_t exponent>
FloatClasses scan_classes(const Bits* data, int64_t count) {
  return on_this_machine(loops::Classify<Bits, exponent>{}, data, count);
}

}  // namespace triage::flags::cpu
