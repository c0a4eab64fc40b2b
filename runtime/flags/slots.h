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
inline constexpr uint64_t SEVERITIES = EACH_SLOT * SEVERITY_MASK;

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

/// Calls visit(index of its first slot, word) for the words of a row, the last one short where `count` is no multiple of
/// four, until it returns false.
template <class Visit>
inline void each_word(const uint16_t* slots, int64_t count, Visit visit) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    if (!visit(i, four_slots(slots + i, 4))) return;
  }
  if (i < count) visit(i, four_slots(slots + i, count - i));
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

/// Calls visit(index, slot) for each error of a row, slot 0 first.
template <class Visit>
inline void each_error_slot(const uint16_t* slots, int64_t count, Visit visit) {
  each_word(slots, count, [&](int64_t i, uint64_t word) {
    for (uint64_t live = live_lanes(word); live; live &= live - 1) {
      const int64_t at = i + lane_of(live);
      visit(at, slots[at]);
    }
    return true;
  });
}

inline uint16_t pack_slot(int64_t code, int64_t location, int64_t severity) {
  return static_cast<uint16_t>(severity | code << CODE_SHIFT | location << LOCATION_SHIFT);
}

/// What a policy (ErrorConfig::policy) asks of one push, decided once for all rows.
struct Recording {
  explicit Recording(int64_t policy)
      : priority(static_cast<Priority>(policy & 3)),
        keep_last((policy >> 2 & 1) != 0),
        track_overflow((policy & TRACK_OVERFLOW) != 0) {
    const auto same = static_cast<Dedupe>(policy >> 3 & 3);
    dedupe = same != Dedupe::none;
    if (same != Dedupe::location) mask |= CODE_MASK;
    if (same != Dedupe::code) mask |= LOCATION_MASK;
  }
  Priority priority;
  bool keep_last;
  bool track_overflow;  // the last slot counts what is dropped (layout.h)
  bool dedupe = false;
  uint16_t mask = 0;  // what two slots must share to be duplicates
};

/// Of a full record, replaces the first of the weakest entries if `slot` outranks it. Returns which of the two was dropped.
inline uint16_t push_by_rank(uint16_t* slots, int64_t count, uint16_t slot, const Recording& how) {
  auto key = [&](uint16_t s) {
    const int rank = how.priority == Priority::severity ? s & SEVERITY_MASK : s >> LOCATION_SHIFT;
    return how.keep_last ? rank : -rank;
  };
  int64_t weakest = 0;
  for (int64_t i = 1; i < count; ++i) {
    if (key(slots[i]) < key(slots[weakest])) weakest = i;
  }
  if (key(slot) <= key(slots[weakest])) return slot;
  const uint16_t dropped = slots[weakest];
  slots[weakest] = slot;
  return dropped;
}

/// The usual case, without branches: all entries are in the first word, which holds a duplicate or an empty slot. Says whether
/// it was that case; else nothing was done.
inline bool push_into_first_word(uint16_t* slots, int64_t count, uint16_t slot, const Recording& how) {
  if (count < 4 || (how.priority == Priority::chrono && how.keep_last)) return false;
  uint64_t rest = 0;
  if (how.dedupe) {
    each_word(slots + 4, count - 4, [&](int64_t, uint64_t more) {
      rest |= more;
      return true;
    });
  }
  uint64_t word = four_slots(slots, 4);
  const uint64_t live = live_lanes(word);
  const uint64_t free = live ^ EACH_SLOT;
  const uint64_t compared = EACH_SLOT * how.mask, wanted = EACH_SLOT * static_cast<uint16_t>(slot & how.mask);
  const uint64_t duplicates = how.dedupe ? zero_lanes((word & compared) ^ wanted) & live : 0;
  const uint64_t candidates = duplicates ? duplicates : free;
  if (rest || !candidates) return false;
  const int shift = std::countr_zero(candidates);
  const bool worse = (slot & SEVERITY_MASK) > (word >> shift & SEVERITY_MASK);  // than an empty slot, whatever it is
  const uint64_t replaced = (word & ~(uint64_t{SLOT_MASK} << shift)) | uint64_t{slot} << shift;
  word = worse ? replaced : word;
  store_four(slots, word, 4);
  return true;
}

/// Records `slot` among `count` entries, in place. A slot of code 0 or severity 0 is not recorded. One walk over the row
/// finds the first entry that `slot` duplicates, and the first empty slot. Returns the entry that was dropped because the
/// slots are full, 0 where none was.
inline uint16_t push_entry(uint16_t* slots, int64_t count, uint16_t slot, const Recording& how) {
  if (!(slot & SEVERITY_MASK) || !(slot & CODE_MASK)) return 0;
  if (push_into_first_word(slots, count, slot, how)) return 0;
  const uint64_t compared = EACH_SLOT * how.mask;
  const uint64_t wanted = EACH_SLOT * static_cast<uint16_t>(slot & how.mask);
  int64_t empty = -1, known = -1;
  each_word(slots, count, [&](int64_t i, uint64_t word) {
    if (!word) {  // most words
      if (empty < 0) empty = i;
      return how.dedupe;
    }
    const uint64_t live = live_lanes(word);
    if (empty < 0 && live != EACH_SLOT) empty = i + lane_of(live ^ EACH_SLOT);
    if (!how.dedupe) return empty < 0;
    const uint64_t duplicates = zero_lanes((word & compared) ^ wanted) & live;
    if (duplicates) known = i + lane_of(duplicates);
    return known < 0;
  });
  if (known >= 0) {
    if ((slot & SEVERITY_MASK) > (slots[known] & SEVERITY_MASK)) slots[known] = slot;
    return 0;
  }
  if (how.priority == Priority::chrono && how.keep_last) {
    const uint16_t last = slots[count - 1];
    std::memmove(slots + 1, slots, static_cast<size_t>(count - 1) * sizeof(uint16_t));
    slots[0] = slot;
    return last & SEVERITY_MASK ? last : 0;
  }
  if (empty >= 0 && empty < count) {  // past the end lie the unused slots of the last word
    slots[empty] = slot;
    return 0;
  }
  return how.priority == Priority::chrono ? slot : push_by_rank(slots, count, slot, how);
}

inline bool is_overflow_record(uint16_t slot) { return (slot & CODE_MASK) == CODE_MASK && (slot & SEVERITY_MASK); }

/// Adds to the overflow record `last`: so many more were dropped, the worst of this severity.
inline void add_dropped(uint16_t& last, int64_t more, int64_t severity) {
  const int64_t known = last & SEVERITY_MASK;
  if (known) more += is_overflow_record(last) ? last >> LOCATION_SHIFT : 1;
  last = pack_slot(err::unknown, more < MAX_DROPPED ? more : MAX_DROPPED, known > severity ? known : severity);
}

/// Records `slot` in a row of `count` slots, in place; the last of them is the overflow record where the policy asks for it.
inline void push_slot(uint16_t* slots, int64_t count, uint16_t slot, const Recording& how) {
  if (!how.track_overflow) {
    push_entry(slots, count, slot, how);
  } else if (const uint16_t dropped = push_entry(slots, count - 1, slot, how)) {
    add_dropped(slots[count - 1], 1, dropped & SEVERITY_MASK);
  }
}

/// Records the errors of another row of `count` slots, slot 0 first.
inline void merge_slots(uint16_t* slots, int64_t count, const uint16_t* others, const Recording& how) {
  each_error_slot(others, count, [&](int64_t i, uint16_t slot) {
    if (how.track_overflow && i == count - 1 && is_overflow_record(slot)) {
      add_dropped(slots[i], slot >> LOCATION_SHIFT, slot & SEVERITY_MASK);
    } else {
      push_slot(slots, count, slot, how);
    }
  });
}

}  // namespace triage::flags
