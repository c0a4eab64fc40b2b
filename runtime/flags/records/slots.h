#pragma once
// Records in memory: a row of 16-bit slots, slot 0 first. On a little-endian machine this is how the words of every
// carrier lie in memory, so one code serves int64, int32, float32 and float64. Scans look at four slots at a time.
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

/// Bit 0 of every lane that holds an error.
template <class Word>
inline Word live_lanes(Word word) {
  return (word | word >> 1) & static_cast<Word>(EACH_SLOT);
}

inline int64_t lane_of(uint64_t lanes) { return std::countr_zero(lanes) / SLOT_BITS; }

/// Calls visit(index, slot) for each error of a row, slot 0 first.
template <class Visit>
inline void each_error_slot(const uint16_t* slots, int64_t count, Visit visit) {
  for (int64_t i = 0; i < count; i += 4) {
    for (uint64_t live = live_lanes(four_slots(slots + i, count - i)); live; live &= live - 1) {
      const int64_t at = i + lane_of(live);
      visit(at, slots[at]);
    }
  }
}

inline uint16_t pack_slot(int64_t code, int64_t location, int64_t severity) {
  return static_cast<uint16_t>(severity | code << CODE_SHIFT | location << LOCATION_SHIFT);
}
inline uint16_t pack_slot(Code code, int64_t location, Severity severity) {
  return pack_slot(to_int(code), location, to_int(severity));
}

/// What a policy (ErrorConfig::policy) asks of one push, decided once for all rows.
struct RecordingPolicy {
  explicit RecordingPolicy(int64_t policy)
      : priority(static_cast<Priority>(policy & 3)),
        keep_last((policy >> 2 & 1) != 0),
        newest_first(priority == Priority::chrono && keep_last),
        track_overflow((policy & TRACK_OVERFLOW) != 0) {
    const auto same = static_cast<Dedupe>(policy >> 3 & 3);
    dedupe = same != Dedupe::none;
    if (same != Dedupe::location) mask |= CODE_IN_SLOT;
    if (same != Dedupe::code) mask |= LOCATION_IN_SLOT;
  }
  Priority priority;
  bool keep_last;
  bool newest_first;
  bool track_overflow;  // the last slot counts what is dropped (layout.h)
  bool dedupe = false;
  uint16_t mask = 0;  // what two slots must share to be duplicates
};

/// Of a full record, replaces the first of the weakest entries if `slot` outranks it. Returns which of the two was
/// dropped.
inline uint16_t push_by_rank(uint16_t* slots, int64_t count, uint16_t slot, const RecordingPolicy& how) {
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

// Where an entry goes, as one number, the least of what each slot says by itself: DUPLICATE_PLACE and the index of the
// first slot that it duplicates, which makes it negative; else the index of the first empty slot; else NO_PLACE.
inline constexpr int16_t DUPLICATE_PLACE = -0x8000;
inline constexpr int16_t NO_PLACE = 0x7FFF;

#ifdef __CUDACC_RTC__  // a thread of a GPU has no vectors of 16 bits
inline int16_t find_place(const uint16_t* slots, int64_t count, uint16_t slot, const RecordingPolicy& how) {
  int16_t empty = NO_PLACE;
  for (int64_t i = 0; i < count && i < NO_PLACE; ++i) {
    if (!(slots[i] & SEVERITY_MASK))
      empty = empty == NO_PLACE ? static_cast<int16_t>(i) : empty;
    else if (how.dedupe && !((slots[i] ^ slot) & how.mask))
      return static_cast<int16_t>(i | DUPLICATE_PLACE);
  }
  return empty;
}
#else
/// Numbers of 16 bits side by side.
template <int lanes>
struct Lanes {
  typedef int16_t Vector __attribute__((vector_size(lanes * sizeof(int16_t))));
};

template <int lanes>
inline int16_t least_lane(const typename Lanes<lanes>::Vector& numbers) {
  if constexpr (lanes == 1) {
    return numbers[0];
  } else {
    typename Lanes<lanes / 2>::Vector halves[2];
    std::memcpy(halves, &numbers, sizeof(numbers));
    const typename Lanes<lanes / 2>::Vector less = halves[0] < halves[1] ? halves[0] : halves[1];
    return least_lane<lanes / 2>(less);
  }
}

// `count` is `lanes` or more. The last vector overlaps the one before where count is no multiple of lanes.
template <int lanes>
inline int16_t place_among(const uint16_t* slots, int64_t count, int16_t mask, int16_t wanted) {
  typedef typename Lanes<lanes>::Vector Vector;
  static constexpr int16_t numbers[] = {0, 1, 2, 3, 4, 5, 6, 7};
  static_assert(lanes <= 8);  // what every machine has
  Vector index, least = Vector{} + NO_PLACE;
  std::memcpy(&index, numbers, sizeof(index));
  for (int64_t i = 0;;) {
    Vector slot;
    std::memcpy(&slot, slots + i, sizeof(slot));
    const Vector same = (slot & mask) == wanted ? index | DUPLICATE_PLACE : Vector{} + NO_PLACE;
    const Vector place = (slot & static_cast<int16_t>(SEVERITY_MASK)) != 0 ? same : index;
    least = place < least ? place : least;
    const int64_t left = count - lanes - i, step = left < lanes ? left : lanes;
    if (step <= 0) return least_lane<lanes>(least);
    i += step;
    index += static_cast<int16_t>(step);
  }
}

inline int16_t find_place(const uint16_t* slots, int64_t count, uint16_t slot, const RecordingPolicy& how) {
  const auto mask = static_cast<int16_t>(how.mask);
  const auto wanted = static_cast<int16_t>(how.dedupe ? slot & how.mask : ~how.mask);  // no slot under the mask is that
  if (count == 16) return place_among<8>(slots, 16, mask, wanted);  // the usual number, known to the compiler
  if (count >= 8) return place_among<8>(slots, count, mask, wanted);
  if (count >= 4) return place_among<4>(slots, count, mask, wanted);
  return place_among<1>(slots, count, mask, wanted);
}
#endif

/// Records `slot` where find_place found no place for it, or none that counts.
inline uint16_t push_without_place(uint16_t* slots, int64_t count, uint16_t slot, const RecordingPolicy& how) {
  if (how.newest_first) {
    const uint16_t last = slots[count - 1];
    std::memmove(slots + 1, slots, static_cast<size_t>(count - 1) * sizeof(uint16_t));
    slots[0] = slot;
    return last & SEVERITY_MASK ? last : 0;
  }
  if (count > NO_PLACE && !(slots[NO_PLACE] & SEVERITY_MASK)) {  // the one slot that has no number of its own
    slots[NO_PLACE] = slot;
    return 0;
  }
  return how.priority == Priority::chrono ? slot : push_by_rank(slots, count, slot, how);
}

/// Records `slot` among `count` entries, in place. A slot of code 0 or severity 0 is not recorded. Returns the entry
/// that was dropped because the slots are full, 0 where none was.
inline uint16_t push_entry(uint16_t* slots, int64_t count, uint16_t slot, const RecordingPolicy& how) {
  if (!(slot & SEVERITY_MASK) || !(slot & CODE_IN_SLOT)) return 0;
  const int16_t place = find_place(slots, count, slot, how);
  if (place == NO_PLACE || (how.newest_first && place >= 0)) return push_without_place(slots, count, slot, how);
  uint16_t& there = slots[place & NO_PLACE];  // any is worse than an empty one
  if ((slot & SEVERITY_MASK) > (there & SEVERITY_MASK)) there = slot;
  return 0;
}

inline bool is_overflow_record(uint16_t slot) {
  return (slot & CODE_IN_SLOT) == CODE_IN_SLOT && (slot & SEVERITY_MASK);
}

/// Adds to the overflow record `last`: so many more were dropped, the worst of this severity.
inline void add_dropped(uint16_t& last, int64_t more, int64_t severity) {
  const int64_t known = last & SEVERITY_MASK;
  if (known) more += is_overflow_record(last) ? last >> LOCATION_SHIFT : 1;
  last = pack_slot(to_int(err::unknown), more < MAX_DROPPED ? more : MAX_DROPPED, known > severity ? known : severity);
}

/// Records `slot` in a row of `count` slots, in place; the last of them is the overflow record where the policy asks
/// for it.
inline void push_slot(uint16_t* slots, int64_t count, uint16_t slot, const RecordingPolicy& how) {
  if (!how.track_overflow) {
    push_entry(slots, count, slot, how);
  } else if (const uint16_t dropped = push_entry(slots, count - 1, slot, how)) {
    add_dropped(slots[count - 1], 1, dropped & SEVERITY_MASK);
  }
}

/// Records `slot`, which lies at `index` of another row.
inline void merge_slot(uint16_t* slots, int64_t count, int64_t index, uint16_t slot, const RecordingPolicy& how) {
  if (how.track_overflow && index == count - 1 && is_overflow_record(slot)) {
    add_dropped(slots[index], slot >> LOCATION_SHIFT, slot & SEVERITY_MASK);
  } else {
    push_slot(slots, count, slot, how);
  }
}

/// Records the errors of another row of `count` slots, slot 0 first.
inline void merge_slots(uint16_t* slots, int64_t count, const uint16_t* others, const RecordingPolicy& how) {
  each_error_slot(others, count, [&](int64_t i, uint16_t slot) { merge_slot(slots, count, i, slot, how); });
}

}  // namespace triage::flags
