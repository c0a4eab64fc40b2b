#pragma once
// What is asked of records, as arithmetic on words of four slots. A question gathers from the words of one record, in
// any order, into two words `a` and `b` that begin as 0 (`add`; `join` where they were gathered in parts), and answers
// from them. Without branches, so that several records are asked at once.
#include <runtime/flags/kernels/scan.h>
#include <runtime/flags/records/slots.h>

#include <algorithm>

namespace triage::flags::cpu {

// Gathers by `or`.
struct AnyBits {
  TRIAGE_INLINE void join(uint64_t& a, uint64_t more) const { a |= more; }
};

struct IsErr : AnyBits {
  TRIAGE_INLINE void add(uint64_t word, uint64_t& a, uint64_t&) const { a |= word; }
  TRIAGE_INLINE bool answer(uint64_t a, uint64_t) const { return (a & SEVERITIES) != 0; }
};

struct IsOk : IsErr {
  TRIAGE_INLINE bool answer(uint64_t a, uint64_t) const { return (a & SEVERITIES) == 0; }
};

struct HasCritical : AnyBits {
  TRIAGE_INLINE void add(uint64_t word, uint64_t& a, uint64_t&) const { a |= word & word >> 1; }
  TRIAGE_INLINE bool answer(uint64_t a, uint64_t) const { return (a & EACH_SLOT) != 0; }
};

/// Any error whose bits under `mask`, some of those of a code, are those of `wanted`.
struct HasBits : AnyBits {
  uint64_t mask, wanted;
  HasBits(int64_t mask_of_slot, int64_t wanted_of_slot)
      : mask(EACH_SLOT * static_cast<uint64_t>(mask_of_slot)),
        wanted(EACH_SLOT * static_cast<uint64_t>(wanted_of_slot)) {}
  TRIAGE_INLINE void add(uint64_t word, uint64_t& a, uint64_t&) const {
    constexpr uint64_t carry = EACH_SLOT * 0x7FFF;  // reaches a lane's highest bit where anything is there
    a |= ((word & SEVERITIES) + carry) & ~(((word ^ wanted) & mask) + carry);
  }
  TRIAGE_INLINE bool answer(uint64_t a, uint64_t) const { return (a & EACH_SLOT << (SLOT_BITS - 1)) != 0; }
};

struct MaxSeverity : AnyBits {
  TRIAGE_INLINE void add(uint64_t word, uint64_t& a, uint64_t& b) const {
    a |= word;
    b |= word & word >> 1;
  }
  TRIAGE_INLINE int64_t answer(uint64_t a, uint64_t b) const {
    const int64_t uncritical = (a & EACH_SLOT * to_int(err::error)) ? to_int(err::error) : (a & EACH_SLOT) != 0;
    return (b & EACH_SLOT) ? to_int(err::critical) : uncritical;
  }
};

struct CountErrors {  // a lane counts to 65,535, and a record has at most 8,192 words of four slots
  TRIAGE_INLINE void add(uint64_t word, uint64_t& a, uint64_t&) const { a += live_lanes(word); }
  TRIAGE_INLINE void join(uint64_t& a, uint64_t more) const { a += more; }
  TRIAGE_INLINE int32_t answer(uint64_t a, uint64_t) const {
    a += a >> 32;
    return static_cast<int32_t>((a + (a >> 16)) & SLOT_MASK);
  }
};

/// Any error that is at least this bad and of one of these codes (bit c for code c). Slot by slot: the one question
/// that has no arithmetic on words.
struct Matches : AnyBits {
  int64_t codes, min_severity;
  Matches(int64_t code_set, int64_t least) : codes(code_set), min_severity(least) {}
  TRIAGE_INLINE void add(uint64_t word, uint64_t& a, uint64_t&) const {
    for (; word; word >>= SLOT_BITS) {
      const auto severity = static_cast<int64_t>(word & SEVERITY_MASK);
      a |= severity && severity >= min_severity && (codes >> (word >> CODE_SHIFT & 0xF) & 1);
    }
  }
  TRIAGE_INLINE bool answer(uint64_t a, uint64_t) const { return a != 0; }
};

/// Asks the records [begin, end) of `width` slots each; the answers go to out[begin..end). Most records are empty: a
/// stretch of them is looked at as a whole first. Not so when many stretches in a row had errors: then most of the next
/// ones are asked outright.
template <class Question, class Answer>
struct AskRecords {
  // Never as `auto`, which forgets how they are aligned.
  typedef uint64_t FourSlots __attribute__((may_alias, aligned(2)));
  typedef uint32_t TwoSlots __attribute__((may_alias, aligned(2)));

  Question question;
  template <int bytes>
  TRIAGE_INLINE void run(const uint16_t* slots, int64_t width, int64_t begin, int64_t end, Answer* out) const {
    const int64_t stretch = std::clamp<int64_t>(MOST_SLOTS / width, 1, MOST_ROWS);
    const loops::Dense<HasAny> scan{};
    int bad_ones = 0, unseen = 0;
    for (int64_t first = begin; first < end; first += stretch) {
      const int64_t last = std::min(first + stretch, end);
      const auto* pairs = reinterpret_cast<const uint32_t*>(slots + first * width);
      if (unseen > 0 || scan.template run<bytes>(pairs, (last - first) * width / 2)) {
        ask(slots, width, first, last, out);
        if (unseen > 0) {
          --unseen;
        } else if (++bad_ones >= MANY) {
          unseen = 4 * MANY;
        }
      } else {
        std::fill(out + first, out + last, static_cast<Answer>(question.answer(0, 0)));
        bad_ones = 0;
      }
    }
  }

 private:
  static constexpr int64_t MOST_ROWS = 64, MOST_SLOTS = 1024;  // of a stretch
  static constexpr int MANY = 16;                              // stretches in a row

  TRIAGE_INLINE void ask(const uint16_t* slots, int64_t width, int64_t begin, int64_t end, Answer* out) const {
    switch (width) {
      case 4:
        return narrow<1>(slots, begin, end, out);
      case 8:
        return narrow<2>(slots, begin, end, out);
      case 16:
        return narrow<4>(slots, begin, end, out);
      default:
        for (int64_t row = begin; row < end; ++row) out[row] = wide(slots + row * width, width);
    }
  }

  // Several records at once: the loop over the rows is the one that vectorises. Answers are made narrow in a loop of
  // their own, for else as many rows would be done at once as a vector has narrow ones.
  template <int words>
  TRIAGE_INLINE void narrow(const uint16_t* slots, int64_t begin, int64_t end, Answer* out) const {
    const FourSlots* from = reinterpret_cast<const FourSlots*>(slots) + begin * words;
    int64_t answers[MOST_ROWS];
    const int64_t rows = end - begin;
#pragma omp simd
    for (int64_t row = 0; row < rows; ++row) {
      uint64_t a = 0, b = 0;
#pragma GCC unroll 4
      for (int k = 0; k < words; ++k) question.add(from[row * words + k], a, b);
      answers[row] = question.answer(a, b);
    }
#pragma omp simd
    for (int64_t row = 0; row < rows; ++row) out[begin + row] = static_cast<Answer>(answers[row]);
  }

  // Several words at once.
  TRIAGE_INLINE Answer wide(const uint16_t* slots, int64_t width) const {
    constexpr int64_t lanes = 8;
    const FourSlots* from = reinterpret_cast<const FourSlots*>(slots);
    const int64_t words = width / 4;
    uint64_t a = 0, b = 0;
    int64_t i = 0;
    if (words >= lanes) {
      uint64_t as[lanes] = {}, bs[lanes] = {};
      for (; i + lanes <= words; i += lanes) {
#pragma omp simd
        for (int64_t k = 0; k < lanes; ++k) question.add(from[i + k], as[k], bs[k]);
      }
      for (int64_t k = 0; k < lanes; ++k) {
        question.join(a, as[k]);
        question.join(b, bs[k]);
      }
    }
    for (; i < words; ++i) question.add(from[i], a, b);
    if (width % 4) question.add(*reinterpret_cast<const TwoSlots*>(slots + words * 4), a, b);
    return question.answer(a, b);
  }
};

}  // namespace triage::flags::cpu
