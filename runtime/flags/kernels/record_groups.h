#pragma once
// Recording in several records at once, as many as a vector holds: the arithmetic of push_slot and merge_slots
// (slots.h) on all of their slots side by side, without branches. What a record says as a whole, as where an entry
// goes, each of its lanes holds in the end. For records of 4, 8, 16, 32 and 64 slots, under every policy that does not
// count what is dropped.
#include <runtime/flags/kernels/nonzero.h>
#include <runtime/flags/records/slots.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace triage::flags::cpu {

/// Whether RecordGroups serves records of `width` slots under this policy. In vectors of 16 bytes it gains where
/// several records share one, and takes longer than one record at a time where they do not (measured: 4096 records of
/// 16 slots).
inline bool in_groups(int64_t width, const RecordingPolicy& how) {
  const int64_t widest = chosen_isa == Isa::plain ? 8 : 64;
  return !how.track_overflow && std::has_single_bit(static_cast<uint64_t>(width)) && width >= 4 && width <= widest;
}

namespace loops {

inline constexpr int64_t MOST_LANES = 32;  // slots that the widest vector holds

/// As many records of `width` slots as a vector of `bytes` holds; a record that is wider lies in several vectors, its
/// parts. Vectors are passed by reference: by value their ABI would depend on the build. Conditions that several things
/// decide are made of the signs of numbers, never of two comparisons: g++ 12 would do those lane by lane.
template <int bytes, int width>
class RecordGroup {
 public:
  typedef int16_t Vector __attribute__((vector_size(bytes)));
  typedef int16_t Unaligned __attribute__((vector_size(bytes), aligned(2), may_alias));
  static constexpr int lanes = bytes / static_cast<int>(sizeof(int16_t));
  static constexpr int parts = std::max(1, width / lanes), records = std::max(1, lanes / width), slots = lanes * parts;
  struct RecordVectors {
    Vector part[parts];
  };

  /// Of the slots of a record the first `count` are used.
  TRIAGE_INLINE RecordGroup(int64_t count, const RecordingPolicy& recording) : how(recording) {
    const auto shared = static_cast<int16_t>(how.mask);
    mask = Vector{} + shared;
    unlike = how.dedupe ? Vector{} : severities;  // no slot under the mask has a severity
#pragma GCC unroll 8
    for (int p = 0; p < parts; ++p) {
      std::memcpy(&number.part[p], NUMBERS.of + p * lanes, bytes);
      const Vector& n = number.part[p];
      used.part[p] = (n - static_cast<int16_t>(count)) >> 15;
      const Vector unused = ~used.part[p] & NO_PLACE;
      empty.part[p] = (n & used.part[p]) | unused;
      duplicate.part[p] = ((n | DUPLICATE_PLACE) & used.part[p]) | unused;
    }
  }

  // Not by memcpy, which g++ would split as in the plain build.
  TRIAGE_INLINE static void load(RecordVectors& to, const uint16_t* from) {
#pragma GCC unroll 8
    for (int p = 0; p < parts; ++p) to.part[p] = reinterpret_cast<const Unaligned*>(from)[p];
  }
  TRIAGE_INLINE static void store(uint16_t* to, const RecordVectors& from) {
#pragma GCC unroll 8
    for (int p = 0; p < parts; ++p) reinterpret_cast<Unaligned*>(to)[p] = from.part[p];
  }

  /// Records in each record the slot that all its lanes of `fresh` hold: an error, or 0 for none.
  TRIAGE_INLINE void record(RecordVectors& in, const Vector& fresh) const {
    const Vector wanted = (fresh & mask) | unlike, severity = fresh & severities;
    RecordVectors place;
    Vector least = no_place;
#pragma GCC unroll 8
    for (int p = 0; p < parts; ++p) {
      const Vector& slot = in.part[p];
      const Vector same = (slot & mask) == wanted ? duplicate.part[p] : no_place;
      place.part[p] = (slot & severities) != 0 ? same : empty.part[p];
      least = place.part[p] < least ? place.part[p] : least;
    }
    share_least(least);
    const Vector most = no_place - int16_t{1}, there = least < most ? least : most;  // which is no place either
    const RecordVectors before = in;
#pragma GCC unroll 8
    for (int p = 0; p < parts; ++p) {
      Vector& slot = in.part[p];
      const Vector better = severity > (slot & severities) ? place.part[p] : no_place;
      slot = better == there ? fresh : slot;
    }
    if (how.newest_first) {
      put_in_front(in, before, fresh, least);
    } else if (how.priority != Priority::chrono) {
      replace_weakest(in, fresh, least);
    }
  }

  /// Records the errors that `others` hold, slot 0 first; changes `others`.
  TRIAGE_INLINE void record_all(RecordVectors& in, RecordVectors& others) const {
    constexpr auto codes = static_cast<int16_t>(CODE_IN_SLOT);
    Vector last = {};
#pragma GCC unroll 8
    for (int p = 0; p < parts; ++p) {
      Vector& slot = others.part[p];
      const Vector error = (-(slot & severities) >> 15) & (-(slot & codes) >> 15) & used.part[p];
      slot &= error;
      const Vector steps = (number.part[p] + int16_t{1}) & error;
      last = steps > last ? steps : last;
    }
    for (int16_t steps = folded<bytes>(AtLeast<int16_t>{}, last); steps > 0; --steps) {
      Vector fresh = others.part[0];
      shuffle<first_of_record>(fresh, fresh, Order{});
      record(in, fresh);
#pragma GCC unroll 8
      for (int p = 0; p < parts; ++p) {
        const Vector next = others.part[std::min(p + 1, parts - 1)];
        shuffle<one_down>(others.part[p], next, Order{});
      }
    }
  }

  /// To all lanes of a record the slot that `from` has for it; 0 where its bit is not set. Reads a whole vector.
  TRIAGE_INLINE static void spread(Vector& to, const uint16_t* from, uint64_t bits) {
    if constexpr (records == 1) {
      typedef uint32_t Pairs __attribute__((vector_size(bytes)));
      to = reinterpret_cast<Vector>(
          Pairs{} + *from * 0x1'0001u);  // g++ builds a vector of 16-bit numbers from memory lane by lane
    } else {
      to = *reinterpret_cast<const Unaligned*>(from);
      shuffle<of_record>(to, to, Order{});
      Vector bit;
      std::memcpy(&bit, BITS.of, bytes);
      to = (bit & static_cast<int16_t>(bits)) != 0 ? to : Vector{};
    }
  }

 private:
  using Order = std::make_integer_sequence<int, lanes>;
  static constexpr int reach = std::min(width, lanes);  // lanes of one vector that one record has
  struct SlotNumbers {
    int16_t of[slots];
  };
  template <int (*number)(int)>
  static constexpr SlotNumbers numbers() {
    SlotNumbers result{};
    for (int i = 0; i < slots; ++i) result.of[i] = static_cast<int16_t>(number(i));
    return result;
  }

  // The new entry comes to slot 0, all others one up, the last one falls out; where it duplicates none.
  TRIAGE_INLINE void put_in_front(RecordVectors& in, const RecordVectors& before, const Vector& fresh,
                                  const Vector& place) const {
#pragma GCC unroll 8
    for (int p = 0; p < parts; ++p) {
      Vector moved = before.part[std::max(p - 1, 0)];
      shuffle<one_up>(moved, before.part[p], Order{});
      moved = number.part[p] == 0 ? fresh : moved;
      const Vector moves = used.part[p] & (-(fresh & severities) >> 15) & ~(place >> 15);
      in.part[p] ^= (in.part[p] ^ moved) & moves;
    }
  }

  // The new entry replaces the first of the weakest, if it outranks that; where it has no other place. A rank and the
  // number of its slot are one number, moved so that the order is that of signed ones.
  TRIAGE_INLINE void replace_weakest(RecordVectors& in, const Vector& fresh, const Vector& none) const {
    constexpr int number_bits = 6;
    const bool severity = how.priority == Priority::severity;
    const auto bits = static_cast<int16_t>(severity ? SEVERITY_MASK : LOCATION_MASK);
    const int shift = severity ? 0 : LOCATION_SHIFT;
    const auto turned = how.keep_last ? int16_t{0} : bits;
    const Vector own = ((fresh >> shift) & bits) ^ turned;
    RecordVectors place;
    Vector least = no_place;
#pragma GCC unroll 8
    for (int p = 0; p < parts; ++p) {
      const Vector rank = ((in.part[p] >> shift) & bits) ^ turned;
      const Vector here = ((rank << number_bits) | number.part[p]) ^ DUPLICATE_PLACE;
      place.part[p] = (here & used.part[p]) | (no_place & ~used.part[p]);
      least = place.part[p] < least ? place.part[p] : least;
    }
    share_least(least);
    const Vector weakest = ((least ^ DUPLICATE_PLACE) >> number_bits) & static_cast<int16_t>(LOCATION_MASK);
    const Vector full = none == no_place ? Vector{} - int16_t{1} : Vector{};
    const Vector replaces = ((weakest - own) >> 15) & (-(fresh & severities) >> 15) & full;
#pragma GCC unroll 8
    for (int p = 0; p < parts; ++p) {
      const Vector changes = (in.part[p] ^ fresh) & replaces;
      in.part[p] ^= place.part[p] == least ? changes : Vector{};
    }
  }

  // Which lane of two vectors, one after the other, comes to lane i.
  template <int distance>
  static constexpr int across(int i) {
    return i ^ distance;
  }
  static constexpr int first_of_record(int i) { return i / reach * reach; }
  static constexpr int of_record(int i) { return i / width; }
  static constexpr int one_down(int i) { return i % reach < reach - 1 ? i + 1 : parts > 1 ? lanes : i; }
  static constexpr int one_up(int i) { return i % reach > 0 ? lanes + i - 1 : parts > 1 ? lanes - 1 : i; }
  template <int (*from)(int), int... i>
  TRIAGE_INLINE static void shuffle(Vector& a, const Vector& b, std::integer_sequence<int, i...>) {
    a = __builtin_shufflevector(a, b, from(i)...);
  }

  // The least of a record's lanes, to all of them.
  template <int distance = 1>
  TRIAGE_INLINE static void share_least(Vector& v) {
    if constexpr (distance < reach) {
      Vector other = v;
      shuffle<across<distance>>(other, other, Order{});
      v = other < v ? other : v;
      share_least<distance * 2>(v);
    }
  }

  static constexpr int number_in_record(int i) { return i % width; }
  static constexpr int bit_of_record(int i) { return 1 << i / width; }
  static constexpr SlotNumbers NUMBERS = numbers<number_in_record>(), BITS = numbers<bit_of_record>();

  const Vector severities = Vector{} + static_cast<int16_t>(SEVERITY_MASK), no_place = Vector{} + NO_PLACE;
  RecordingPolicy how;
  Vector mask, unlike;
  RecordVectors number, used, empty, duplicate;
};

/// What a group records: one slot in all of its records. A bit stands for four slots.
struct SameSlot {
  static constexpr bool a_bit_a_record = false;
  uint16_t slot;
  template <class Some>
  TRIAGE_INLINE void record(const Some& group, typename Some::RecordVectors& in, int64_t, int64_t, uint64_t) const {
    group.record(in, typename Some::Vector{} + static_cast<int16_t>(slot));
  }
};

/// ... a slot of its own in each that has its bit; `slots` lie `step` (0 or 1) apart, and may be read as far as a
/// vector.
struct SlotOfRecord {
  static constexpr bool a_bit_a_record = true;
  const uint16_t* slots;
  int64_t step;
  template <class Some>
  TRIAGE_INLINE void record(const Some& group, typename Some::RecordVectors& in, int64_t row, int64_t,
                            uint64_t bits) const {
    typename Some::Vector fresh;
    group.spread(fresh, slots + row * step, bits);
    group.record(in, fresh);
  }
};

/// ... the errors of other records. A bit stands for four slots.
struct SlotsOfOthers {
  static constexpr bool a_bit_a_record = false;
  const uint16_t* others;
  int64_t width;
  template <class Some>
  TRIAGE_INLINE void record(const Some& group, typename Some::RecordVectors& in, int64_t row, int64_t rows,
                            uint64_t) const {
    typename Some::RecordVectors more = {};
    if (rows >= Some::records) {
      group.load(more, others + row * width);
    } else {
      std::memcpy(&more, others + row * width, static_cast<size_t>(rows * width) * sizeof(uint16_t));
    }
    group.record_all(in, more);
  }
};

/// Records what `fresh` says in those of `rows` records whose bits are set, from `from` to `to`; a group that has a bit
/// is written as a whole.
template <class Fresh>
struct RecordGroups {
  Fresh fresh;
  int64_t count;
  RecordingPolicy how;

  template <int bytes>
  TRIAGE_INLINE void run(const uint16_t* from, uint16_t* to, int64_t width, int64_t rows,
                         const NonzeroPlaces* places) const {
    switch (width) {
      case 4:
        return walk<RecordGroup<bytes, 4>, 4>(from, to, rows, *places);
      case 8:
        return walk<RecordGroup<bytes, 8>, 8>(from, to, rows, *places);
      case 16:
        return walk<RecordGroup<bytes, 16>, 16>(from, to, rows, *places);
      case 32:
        return walk<RecordGroup<bytes, 32>, 32>(from, to, rows, *places);
      default:
        return walk<RecordGroup<bytes, 64>, 64>(from, to, rows, *places);
    }
  }

 private:
  template <class Some, int width>
  TRIAGE_INLINE void walk(const uint16_t* from, uint16_t* to, int64_t rows, const NonzeroPlaces& places) const {
    constexpr int bits_a_group = Fresh::a_bit_a_record ? Some::records : Some::slots / 4;
    constexpr uint64_t all = (uint64_t{1} << bits_a_group) - 1, first_of_each = ~uint64_t{0} / all;
    constexpr int64_t rows_together = NonzeroPlaces::TOGETHER / bits_a_group * Some::records;
    const Some group(count, how);
    for (int64_t i = 0; i < places.filled; ++i) {
      const uint64_t bits = places.bits[i];
      uint64_t groups = bits;
      for (int shift = 1; shift < bits_a_group; shift *= 2) groups |= groups >> shift;
      groups &= first_of_each;
      do {
        const int at = std::countr_zero(groups);
        const int64_t row = places.at[i] * rows_together + at / bits_a_group * Some::records;
        one(group, from + row * width, to + row * width, row, rows - row, bits >> at & all);
        groups &= groups - 1;
      } while (groups);
    }
  }

  template <class Some>
  TRIAGE_INLINE void one(const Some& group, const uint16_t* from, uint16_t* to, int64_t row, int64_t rows,
                         uint64_t bits) const {
    typename Some::RecordVectors in;
    if (rows >= Some::records) {
      group.load(in, from);
      fresh.record(group, in, row, rows, bits);
      group.store(to, in);
    } else {  // the last of the records
      const auto size = static_cast<size_t>(rows) * sizeof(in) / Some::records;
      in = {};
      std::memcpy(&in, from, size);
      fresh.record(group, in, row, rows, bits);
      std::memcpy(to, &in, size);
    }
  }
};

}  // namespace loops
}  // namespace triage::flags::cpu
