#pragma once
// The inner loops of detection: is there anything wrong in this stretch of memory? NaN and Inf are told by integer
// arithmetic on the bits, so that the loops vectorise without -ffast-math. The library is built for the plainest machine
// of its architecture; each loop exists for AVX2 and AVX-512 too, chosen once at run time.
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define TRIAGE_SCAN_X86 1
#define TRIAGE_TARGET(isa) __attribute__((target(isa)))
#else
#define TRIAGE_TARGET(isa)
#endif
#if defined(__GNUC__)
#define TRIAGE_INLINE inline __attribute__((always_inline))
#else
#define TRIAGE_INLINE inline
#endif

namespace triage::flags::cpu {

/// Marks floats whose exponent is all ones. `exponent` is the mask of a format's exponent bits: adding the lowest of them
/// carries into the sign bit exactly when all are set. `add` takes one word, or a vector of them.
template <class Bits, uint64_t exponent>
struct NonFinite {
  using Word = Bits;
  static constexpr auto mask = static_cast<Bits>(exponent);
  static constexpr auto carry = static_cast<Bits>(exponent & (~exponent + 1));
  template <class T>
  TRIAGE_INLINE void add(T& marks, const T& bits) const {
    marks = static_cast<T>(marks | static_cast<T>(static_cast<T>(bits & mask) + carry));
  }
  /// The bits of the marks that tell: every sign bit.
  static constexpr auto telling = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
};

/// Marks integers outside 0 .. limit-1, seen as unsigned: negative ones are large.
template <class Bits>
struct AtLeast {
  using Word = Bits;
  Bits limit;
  TRIAGE_INLINE void add(Bits& marks, const Bits& bits) const { marks = static_cast<Bits>(marks | (bits >= limit)); }
  template <class T>
  TRIAGE_INLINE void add(T& marks, const T& bits) const {
    marks |= reinterpret_cast<T>(bits >= limit);  // lane by lane, all ones where it holds
  }
  static constexpr auto telling = static_cast<Bits>(~Bits{0});
};

template <class Probe>
bool marked(typename Probe::Word marks) {
  return (marks & Probe::telling) != 0;
}

namespace loops {

// Vectors of `bytes` bytes, of which four are in flight: one accumulator would be a chain that waits for itself.
template <int bytes, class Probe, class Word = typename Probe::Word>
TRIAGE_INLINE bool dense(const Probe& probe, const Word* data, int64_t count) {
  typedef Word Vector __attribute__((vector_size(bytes)));
  typedef Word Unaligned __attribute__((vector_size(bytes), aligned(alignof(Word)), may_alias));
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
  a |= b | c | d;
  uint64_t folded[bytes / 8];
  std::memcpy(folded, &a, sizeof(a));
  uint64_t all = 0;
  for (uint64_t part : folded) all |= part;
  constexpr uint64_t each_lane = ~uint64_t{0} / static_cast<Word>(~Word{0});
  if (all & (each_lane * Probe::telling)) return true;
  Word marks = 0;
  for (; i < count; ++i) probe.add(marks, data[i]);
  return marked<Probe>(marks);
}

/// What a stretch of floats holds.
struct Found {
  bool nan = false;
  bool inf = false;
};

template <class Bits, uint64_t exponent>
TRIAGE_INLINE Found classify(const Bits* data, int64_t count) {
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

template <class Probe, class Word = typename Probe::Word>
TRIAGE_INLINE void columns(const Probe& probe, const Word* data, Word* marks, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) probe.add(marks[i], data[i]);
}

#define TRIAGE_SCAN_FOR(suffix, isa, bytes)                                                 \
  template <class Probe, class Word = typename Probe::Word>                                 \
  TRIAGE_TARGET(isa)                                                                        \
  bool dense_##suffix(const Probe& probe, const Word* data, int64_t count) {                \
    return dense<bytes>(probe, data, count);                                                \
  }                                                                                         \
  template <class Probe, class Word = typename Probe::Word>                                 \
  TRIAGE_TARGET(isa)                                                                        \
  void columns_##suffix(const Probe& probe, const Word* data, Word* marks, int64_t count) { \
    columns(probe, data, marks, count);                                                     \
  }                                                                                         \
  template <class Bits, uint64_t exponent>                                                  \
  TRIAGE_TARGET(isa)                                                                        \
  Found classify_##suffix(const Bits* data, int64_t count) {                                \
    return classify<Bits, exponent>(data, count);                                           \
  }
TRIAGE_SCAN_FOR(plain, "default", 16)
#ifdef TRIAGE_SCAN_X86
TRIAGE_SCAN_FOR(avx2, "avx2", 32)
TRIAGE_SCAN_FOR(avx512, "avx512f,avx512bw,avx512dq,avx512vl", 64)
#endif
#undef TRIAGE_SCAN_FOR

}  // namespace loops

enum class Isa { plain, avx2, avx512 };
Isa machine_isa();

/// Is anything marked among `count` elements from `data`?
template <class Probe, class Word = typename Probe::Word>
bool scan_dense(const Probe& probe, const Word* data, int64_t count) {
#ifdef TRIAGE_SCAN_X86
  static const Isa isa = machine_isa();
  if (isa == Isa::avx512) return loops::dense_avx512(probe, data, count);
  if (isa == Isa::avx2) return loops::dense_avx2(probe, data, count);
#endif
  return loops::dense_plain(probe, data, count);
}

/// Adds the marks of `count` elements, one to each of `marks`.
template <class Probe, class Word = typename Probe::Word>
void scan_columns(const Probe& probe, const Word* data, Word* marks, int64_t count) {
#ifdef TRIAGE_SCAN_X86
  static const Isa isa = machine_isa();
  if (isa == Isa::avx512) return loops::columns_avx512(probe, data, marks, count);
  if (isa == Isa::avx2) return loops::columns_avx2(probe, data, marks, count);
#endif
  loops::columns_plain(probe, data, marks, count);
}

/// NaN or Inf among `count` elements from `data`?
using loops::Found;
template <class Bits, uint64_t exponent>
Found scan_classes(const Bits* data, int64_t count) {
#ifdef TRIAGE_SCAN_X86
  static const Isa isa = machine_isa();
  if (isa == Isa::avx512) return loops::classify_avx512<Bits, exponent>(data, count);
  if (isa == Isa::avx2) return loops::classify_avx2<Bits, exponent>(data, count);
#endif
  return loops::classify_plain<Bits, exponent>(data, count);
}

}  // namespace triage::flags::cpu
