#pragma once
// Records in memory: a row of 16-bit slots, slot 0 first. On a little-endian machine this is how the words of every carrier
// lie in memory, so one code serves int64, int32, float32 and float64. Scans look at four slots at a time.
#include <triage/layout.h>

#include <bit>
#include <cstdint>
#include <cstring>

namespace triage::flags {

static_assert(std::endian::native == std::endian::little, "slots are read through memory: little-endian machines only");

inline constexpr uint64_t EACH_SLOT = 0x0001'0001'0001'0001;

/// Up to four slots as one word; the lanes beyond `count` are zero. A full word is the usual case, and one load.
inline uint64_t four_slots(const uint16_t* slots, int64_t count) {
  uint64_t word = 0;
  if (count >= 4) {
    std::memcpy(&word, slots, sizeof(word));
  } else {
    for (int64_t i = 0; i < count; ++i) word |= uint64_t{slots[i]} << (SLOT_BITS * i);
  }
  return word;
}

inline void store_four(uint16_t* slots, uint64_t word, int64_t count) {
  if (count >= 4) {
    std::memcpy(slots, &word, sizeof(word));
  } else {
    for (int64_t i = 0; i < count; ++i) slots[i] = static_cast<uint16_t>(word >> (SLOT_BITS * i));
  }
}

/// Bit 0 of every lane that holds an error.
template <class Word>
inline Word live_lanes(Word word) {
  return (word | word >> 1) & static_cast<Word>(EACH_SLOT);
}

/// Bit 0 of every lane that is zero.
template <class Word>
inline Word zero_lanes(Word word) {
  constexpr auto low = static_cast<Word>(EACH_SLOT * 0x7FFF);
  return static_cast<Word>(~(((word & low) + low) | word) >> 15) & static_cast<Word>(EACH_SLOT);
}

inline int64_t lane_of(uint64_t lanes) { return std::countr_zero(lanes) / SLOT_BITS; }

inline uint16_t pack_slot(int64_t code, int64_t location, int64_t severity) {
  return static_cast<uint16_t>(severity | code << CODE_SHIFT | location << LOCATION_SHIFT);
}

/// The first entry that agrees with `slot` in the bits of `mask`; -1 where none does.
inline int64_t find_duplicate(const uint16_t* slots, int64_t count, uint16_t slot, uint16_t mask) {
  const uint64_t wanted = EACH_SLOT * static_cast<uint16_t>(slot & mask);
  for (int64_t i = 0; i < count; i += 4) {
    const uint64_t word = four_slots(slots + i, count - i);
    if (!word) continue;  // most words are empty
    const uint64_t hits = zero_lanes((word & EACH_SLOT * mask) ^ wanted) & live_lanes(word);
    if (hits) return i + lane_of(hits);
  }
  return -1;
}

inline int64_t find_empty(const uint16_t* slots, int64_t count) {
  for (int64_t i = 0; i < count; i += 4) {
    const uint64_t empty = ~live_lanes(four_slots(slots + i, count - i)) & EACH_SLOT;
    if (!empty) continue;
    const int64_t at = i + lane_of(empty);
    return at < count ? at : -1;
  }
  return -1;
}

/// What a policy asks of one push, decided once for all rows.
struct Recording {
  explicit Recording(const AccumulationConfig& policy)
      : priority(policy.priority), keep_last(policy.order == Order::last), dedupe(policy.dedupe != Dedupe::none) {
    if (policy.dedupe != Dedupe::location) mask |= CODE_MASK;
    if (policy.dedupe != Dedupe::code) mask |= LOCATION_MASK;
  }
  Priority priority;
  bool keep_last;
  bool dedupe;
  uint16_t mask = 0;  // what two slots must share to be duplicates
};

/// Of a full record, replaces the first of the weakest entries if `slot` outranks it.
inline void push_by_rank(uint16_t* slots, int64_t count, uint16_t slot, const Recording& how) {
  auto key = [&](uint16_t s) {
    const int rank = how.priority == Priority::severity ? s & SEVERITY_MASK : s >> LOCATION_SHIFT;
    return how.keep_last ? rank : -rank;
  };
  int64_t weakest = 0;
  for (int64_t i = 1; i < count; ++i) {
    if (key(slots[i]) < key(slots[weakest])) weakest = i;
  }
  if (key(slot) > key(slots[weakest])) slots[weakest] = slot;
}

/// Records `slot` in a row of `count` slots, in place. A slot of code 0 or severity 0 is not recorded.
inline void push_slot(uint16_t* slots, int64_t count, uint16_t slot, const Recording& how) {
  if (!(slot & SEVERITY_MASK) || !(slot & CODE_MASK)) return;
  if (how.dedupe) {
    const int64_t duplicate = find_duplicate(slots, count, slot, how.mask);
    if (duplicate >= 0) {
      if ((slot & SEVERITY_MASK) > (slots[duplicate] & SEVERITY_MASK)) slots[duplicate] = slot;
      return;
    }
  }
  if (how.priority == Priority::chrono && how.keep_last) {
    std::memmove(slots + 1, slots, static_cast<size_t>(count - 1) * sizeof(uint16_t));
    slots[0] = slot;
    return;
  }
  const int64_t empty = find_empty(slots, count);
  if (empty >= 0) {
    slots[empty] = slot;
  } else if (how.priority != Priority::chrono) {
    push_by_rank(slots, count, slot, how);
  }
}

}  // namespace triage::flags
