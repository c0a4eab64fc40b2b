#pragma once
// What generated loops and tapes do with the record of one sample: slots of 16 bits (layout.h, slots.h), of which some
// hold entries. The operations of runtime/flags, one row at a time.
#include <runtime/flags/records/slots.h>

#include "runtime/backends/fused/support/numbers.h"

namespace triage::fused {
inline namespace TRIAGE_SUPPORT {

using namespace triage::flags;  // NOLINT: the code of this namespace is written by the emitter

/// Of a type that has `slots`, and `width()` tells how many lie in memory.
template <class Own>
struct RecordOperations {
  const Own& own() const { return static_cast<const Own&>(*this); }

  /// Calls visit(slot) for every entry, slot 0 first.
  template <class Visit>
  void each(Visit visit) const {
    for (int64_t i = 0; i < own().width(); ++i)
      if (own().slots[i] & SEVERITY_MASK) visit(own().slots[i]);
  }

  bool is_err() const { return (all_bits() & SEVERITIES) != 0; }
  /// Of all slots, four in a word. Looked at as one vector: in pieces the record would have to come back from memory to
  /// be copied.
  uint64_t all_bits() const {
    uint64_t any = 0;
    int64_t i = 0;
#ifndef __CUDACC_RTC__
    typedef uint64_t Words __attribute__((vector_size(32)));  // NOLINT: `using` does not take the attribute
    for (; i + 16 <= own().width(); i += 16) {
      Words words;
      __builtin_memcpy(&words, own().slots + i, sizeof(words));
      any |= words[0] | words[1] | words[2] | words[3];
    }
#endif
    for (; i < own().width(); i += 4) any |= four_slots(own().slots + i, own().width() - i);
    return any;
  }
  /// Has an entry whose code is in the set, at least this bad.
  bool match(int64_t codes, int64_t min_severity) const {
    bool found = false;
    if (is_err())
      each([&](uint16_t slot) {
        found |= (codes >> ((slot & CODE_IN_SLOT) >> CODE_SHIFT) & 1) && (slot & SEVERITY_MASK) >= min_severity;
      });
    return found;
  }
  int32_t count_errors() const {
    int32_t count = 0;
    for (int64_t i = 0; i < own().width(); i += 4)
      count += __builtin_popcountll(live_lanes(four_slots(own().slots + i, own().width() - i)));
    return count;
  }
  int64_t max_severity() const {
    int64_t worst = 0;
    each([&](uint16_t slot) { worst = (slot & SEVERITY_MASK) > worst ? slot & SEVERITY_MASK : worst; });
    return worst;
  }
  int32_t first_severity() const { return own().slots[0] & SEVERITY_MASK; }
  int32_t first_code() const { return (own().slots[0] & CODE_IN_SLOT) >> CODE_SHIFT; }
  int32_t first_location() const { return own().slots[0] >> LOCATION_SHIFT; }
  int64_t slot(int64_t index) const { return own().slots[index]; }

  /// Changed from what it was: rows without errors are one copy.
  Own pushed_if(bool where, int64_t count, int64_t code, int64_t location, int64_t severity,
                const RecordingPolicy& how) const {
    Own record = own();
    if (__builtin_expect(where, 0)) {
      const bool known = code >= 0 && code <= 15;
      const uint16_t slot = pack_slot(known ? code : 15, location, severity);
      // In an empty record, which most are, the first place is the one whatever is asked for.
      if (count > 1 && (slot & SEVERITY_MASK) && (slot & CODE_IN_SLOT) && all_bits() == 0)
        record.slots[0] = slot;
      else
        push_slot(record.slots, count, slot, how);
    }
    return record;
  }
  template <class Other>
  Own merged(const Other& other, int64_t count, const RecordingPolicy& how) const {
    Own record = own();
    merge_slots(record.slots, count, other.slots, how);
    return record;
  }
  Own cleared(int64_t code) const {
    Own record = own();
    for (int64_t i = 0; i < record.width(); ++i)
      if ((record.slots[i] & SEVERITY_MASK) && (record.slots[i] & CODE_IN_SLOT) >> CODE_SHIFT == code)
        record.slots[i] = 0;
    return record;
  }
};

template <int64_t count>
struct Record : RecordOperations<Record<count>> {
  uint16_t slots[count];

  static constexpr int64_t width() { return count; }
  static Record from(const void* memory) {
    Record record;
    __builtin_memcpy(record.slots, memory, sizeof(record.slots));
    return record;
  }
  static Record empty() {
    Record record;
    __builtin_memset(record.slots, 0, sizeof(record.slots));
    return record;
  }
  void store(void* memory) const { __builtin_memcpy(memory, slots, sizeof(slots)); }
};

/// A record where it lies: what is changed is changed there. `count`: 0: told at run time.
template <class Slot, int64_t count>
struct RecordInPlace : RecordOperations<RecordInPlace<Slot, count>> {
  Slot* slots;
  int64_t told;

  RecordInPlace(Slot* slots, int64_t told) : slots(slots), told(told) {}
  int64_t width() const { return count > 0 ? count : told; }
};

}  // namespace TRIAGE_SUPPORT
}  // namespace triage::fused
