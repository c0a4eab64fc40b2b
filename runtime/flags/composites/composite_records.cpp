// Records as plain ATen calls. Where it is known what the rows can be (known_rows.h), the new rows are computed here,
// and a mask or two choose among them. Otherwise a record becomes (N, slots) integers, one column a slot; an update is
// one `masked_fill` of the columns; then they are packed into words again. No call here names the batch size, and none
// reads a value.
#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "runtime/flags/checks.h"
#include "runtime/flags/composites/composite_slots.h"
#include "runtime/flags/composites/composite_table.h"
#include "runtime/flags/composites/known_rows.h"
#include "runtime/flags/operators.h"
#include "runtime/flags/records/slots.h"

namespace triage::flags::composite {
namespace {

using Row = RowTable::Row;

constexpr int64_t DEDUPE_MASK[] = {0, CODE_IN_SLOT, LOCATION_IN_SLOT, CODE_IN_SLOT | LOCATION_IN_SLOT};

ScalarType bits_dtype(ScalarType carrier) { return check::slots_per_word(carrier) == 2 ? at::kInt : at::kLong; }

Tensor as_carrier(const Tensor& words, ScalarType carrier) {
  return words.scalar_type() == carrier ? words : words.view(carrier);
}

// `to` would be a call also where it has nothing to do.
Tensor as_dtype(const Tensor& numbers, ScalarType dtype) {
  return numbers.scalar_type() == dtype ? numbers : numbers.to(dtype);
}

Tensor shifts(const Tensor& words) {
  const int64_t bits = words.scalar_type() == at::kInt ? 32 : 64;
  return at::arange(0, bits, SLOT_BITS, words.options());
}

/// (N, slots) integers, of words.
Tensor unpack(const Tensor& words, const Tensor& shifts) {
  const auto spread = at::bitwise_right_shift(at::unsqueeze(words, -1), shifts);
  return at::flatten(at::bitwise_and(spread, SLOT_MASK), 1, 2);
}

/// Slots (N, words * slots a word) back into words.
Tensor pack(const Tensor& slots, const Tensor& shifts) {
  const int64_t per = slots.scalar_type() == at::kInt ? 2 : 4;
  const auto shifted = at::bitwise_left_shift(at::reshape(slots, {-1, slots.size(1) / per, per}), shifts);
  return at::sum(shifted, {-1}, /*keepdim=*/false, slots.scalar_type());
}

Tensor location_of(const Tensor& slots) { return at::bitwise_right_shift(slots, LOCATION_SHIFT); }

/// A number that is the same in all rows, or one a row (N, 1).
class Number {
 public:
  Number(int64_t all) : all_(all) {}               // NOLINT(google-explicit-constructor)
  Number(Tensor each) : each_(std::move(each)) {}  // NOLINT(google-explicit-constructor)
  /// Calls `use` with the Tensor, or with the Scalar.
  template <class Use>
  Tensor in(Use use) const {
    return each_.defined() ? use(each_) : use(Scalar(all_));
  }
  Number bits(int64_t mask) const {
    return each_.defined() ? Number(at::bitwise_and(each_, mask)) : Number(all_ & mask);
  }
  /// The number times `factor`, plus `more`.
  Number scaled(int64_t factor, int64_t more) const {
    return each_.defined() ? Number(at::rsub(each_, more, -factor)) : Number(all_ * factor + more);
  }

 private:
  Tensor each_;
  int64_t all_ = 0;
};

/// What is recorded: an error in each row.
struct Fresh {
  Number slot, severity, location;

  static Fresh same(int64_t code, int64_t location, int64_t severity) {
    return {int64_t{pack_slot(code, location, severity)}, severity, location};
  }
  static Fresh of(const Tensor& slots) { return {slots, severity_of(slots), location_of(slots)}; }

  /// In the place of entries.
  Tensor written(const Tensor& slots, const Tensor& where) const {
    return slot.in([&](const auto& it) {
      if constexpr (std::is_same_v<decltype(it), const Tensor&>)
        return at::where(where, it, slots);
      else
        return at::masked_fill(slots, where, it);
    });
  }
  /// In front of the columns but the last.
  Tensor before(const Tensor& slots) const {
    return slot.in([&](const auto& it) {
      if constexpr (std::is_same_v<decltype(it), const Tensor&>)
        return at::cat({it, at::slice(slots, 1, 0, slots.size(1) - 1)}, 1);
      else
        return at::constant_pad_nd(slots, {1, -1}, it);
    });
  }
};

/// What a push dropped: in which rows, (N, 1), and how bad it was.
struct Dropped {
  Tensor where;
  Number severity;
};

struct RecordedEntries {
  Tensor entries;
  std::optional<Dropped> dropped;  // only where it is asked for
};

/// Which entries are duplicates of what is recorded; undefined where the policy has none.
Tensor duplicates(const Tensor& slots, const Tensor& live, const Fresh& fresh, Dedupe dedupe) {
  if (dedupe == Dedupe::none) return Tensor();
  const int64_t mask = DEDUPE_MASK[static_cast<int>(dedupe)];
  const auto same =
      fresh.slot.bits(mask).in([&](const auto& wanted) { return at::eq(at::bitwise_and(slots, mask), wanted); });
  return at::logical_and(same, live);
}

Tensor weaker_than(const Tensor& severity, const Fresh& fresh) {
  return fresh.severity.in([&](const auto& it) { return at::lt(severity, it); });
}

Tensor least(const Tensor& places) { return at::amin(places, {1}, /*keepdim=*/true); }

/// Puts it in front, or in the place of the first duplicate, if it is worse.
RecordedEntries record_in_front(const Tensor& slots, const Fresh& fresh, Dedupe dedupe, bool track) {
  const int64_t count = slots.size(1);
  const auto severity = dedupe != Dedupe::none || track ? severity_of(slots) : Tensor();
  RecordedEntries result{fresh.before(slots), std::nullopt};
  if (track) {
    const auto last = at::slice(severity, 1, count - 1);
    result.dropped = Dropped{at::ne(last, 0), last};
  }
  if (dedupe == Dedupe::none) return result;
  const auto same = duplicates(slots, at::ne(severity, 0), fresh, dedupe);
  const auto places = at::add(at::arange(count, slots.options()), same, -count);  // negative: of a duplicate
  const auto first = least(places);
  const auto found = at::lt(first, 0);
  const auto target = at::logical_and(at::eq(places, first), weaker_than(severity, fresh));
  result.entries = at::where(found, fresh.written(slots, target), result.entries);
  if (track) result.dropped->where = at::gt(result.dropped->where, found);
  return result;
}

/// A number for each entry: the least one of a row is where the error goes, if it is at most `most`. Duplicates come
/// first, from -count; then empty entries, from 0; then those that it outranks, from `count`, the weakest first; then
/// the others.
struct EntryPlaces {
  Tensor places;
  Number most;
};
EntryPlaces places_for(const Tensor& slots, const Tensor& severity, const Tensor& live, const Tensor& same,
                       const Fresh& fresh, const AccumulationConfig& policy) {
  const int64_t count = slots.size(1);
  const auto index = at::arange(count, slots.options());
  if (policy.priority == Priority::chrono) {
    const auto places = at::add(index, live, count);
    return {same.defined() ? at::add(places, same, -2 * count) : places, count - 1};
  }
  const bool by_severity = policy.priority == Priority::severity, keep_highest = policy.order == Order::last;
  const int64_t highest = by_severity ? to_int(err::critical) : LOCATION_MASK;
  const auto rank = by_severity ? severity : at::mul(location_of(slots), live);  // 0 of empty entries
  auto places = at::add(index, live, keep_highest ? count : count * (1 + highest));
  places = at::add(places, rank, keep_highest ? count : -count);
  if (same.defined()) places = at::where(same, at::sub(index, count), places);
  const Number& own = by_severity ? fresh.severity : fresh.location;
  return {places, keep_highest ? own.scaled(count, count - 1) : own.scaled(-count, count * (1 + highest) - 1)};
}

/// Records an error among the entries `slots`.
RecordedEntries record_entry(const Tensor& slots, const Fresh& fresh, const AccumulationConfig& policy, bool track) {
  const bool chrono = policy.priority == Priority::chrono, keep_highest = policy.order == Order::last;
  if (chrono && keep_highest) return record_in_front(slots, fresh, policy.dedupe, track);
  const auto severity = severity_of(slots), live = at::ne(severity, 0);
  const auto same = duplicates(slots, live, fresh, policy.dedupe);
  const auto [places, most] = places_for(slots, severity, live, same, fresh, policy);
  const auto first = least(places);
  // Where the first place is none, no entry has this one.
  auto target = at::eq(places, most.in([&](const auto& it) { return at::clamp_max(first, it); }));
  RecordedEntries result;
  if (track) {
    result.dropped = Dropped{at::ge(first, slots.size(1)), fresh.severity};
    if (!chrono) {
      const auto lost = at::amax(at::mul(severity, target), {1}, /*keepdim=*/true);
      const auto is_own = most.in([&](const auto& it) { return at::gt(first, it); });
      result.dropped->severity = fresh.severity.in([&](const auto& it) { return at::where(is_own, it, lost); });
    }
  }
  if (same.defined()) {  // a duplicate that is as bad stays
    const bool all_weaker = chrono || (policy.priority == Priority::severity && keep_highest);
    const auto weaker = weaker_than(severity, fresh);
    target = at::logical_and(target, all_weaker ? weaker : at::ge(weaker, same));
  }
  result.entries = fresh.written(slots, target);
  return result;
}

/// The overflow record `last` (N, 1) with `more` errors dropped, the worst of `dropped.severity`.
Tensor with_dropped(const Tensor& last, const Number& more, const Dropped& dropped) {
  constexpr int64_t one = int64_t{1} << LOCATION_SHIFT;
  const auto before = severity_of(last);
  const auto is_record = at::gt(at::bitwise_and(last, CODE_IN_SLOT | SEVERITY_MASK), CODE_IN_SLOT);
  const auto number =
      at::where(is_record, at::bitwise_and(last, LOCATION_IN_SLOT), at::mul(at::clamp_max(before, 1), one));
  const auto sum = more.scaled(one, CODE_IN_SLOT).in([&](const auto& it) { return at::add(number, it); });
  const auto worst = dropped.severity.in([&](const auto& it) { return at::clamp_min(before, it); });
  return at::where(dropped.where, at::add(at::clamp_max(sum, MAX_DROPPED * one + CODE_IN_SLOT), worst), last);
}

/// Records an error in the first `num_slots` columns, of which the last is the overflow record where `policy` asks for
/// it. The other columns stay as they are.
Tensor record_slot(const Tensor& slots, const Fresh& fresh, int64_t num_slots, int64_t policy) {
  const bool track = (policy & TRACK_OVERFLOW) != 0;
  const int64_t count = num_slots - track, capacity = slots.size(1);
  const auto entries = count < capacity ? at::slice(slots, 1, 0, count) : slots;
  const auto recorded = record_entry(entries, fresh, check::unpack(policy), track);
  std::vector<Tensor> parts{recorded.entries};
  if (track) parts.push_back(with_dropped(at::slice(slots, 1, count, num_slots), 1, *recorded.dropped));
  if (num_slots < capacity) parts.push_back(at::slice(slots, 1, num_slots, capacity));
  return parts.size() == 1 ? parts[0] : at::cat(parts, 1);
}

/// Records a slot a row (N, 1), where it is an error.
Tensor merge_slot(const Tensor& slots, const Tensor& slot, int64_t num_slots, int64_t policy) {
  const auto is_error = at::logical_and(at::ne(severity_of(slot), 0), at::ne(at::bitwise_and(slot, CODE_IN_SLOT), 0));
  return at::where(is_error, record_slot(slots, Fresh::of(slot), num_slots, policy), slots);
}

/// What merge makes of the overflow record of the other: dropped errors add up, another entry is one as any.
Tensor merge_overflow(const Tensor& slots, const Tensor& other, int64_t num_slots, int64_t policy) {
  const int64_t last = num_slots - 1, capacity = slots.size(1);
  const auto unknown = at::eq(at::bitwise_and(other, CODE_IN_SLOT), CODE_IN_SLOT);
  const auto merged = merge_slot(slots, at::mul(other, at::logical_not(unknown)), num_slots, policy);
  const auto dropped = at::mul(other, unknown), severity = severity_of(dropped);
  const auto record =
      with_dropped(at::slice(merged, 1, last, num_slots), location_of(dropped), {at::ne(severity, 0), severity});
  return at::cat({at::slice(merged, 1, 0, last), record, at::slice(merged, 1, num_slots, capacity)}, 1);
}

/// Records an error in the rows of `which` (N, 1); in all where that is undefined.
Tensor record_words(const Tensor& flags, const Fresh& fresh, const Tensor& which, int64_t num_slots, int64_t policy) {
  const auto before = bits_of(flags), by = shifts(before);
  auto words = pack(record_slot(unpack(before, by), fresh, num_slots, policy), by);
  if (which.defined()) words = at::where(which, words, before);
  return as_carrier(words, flags.scalar_type());
}

bool is_empty(const RowTable& table) {
  return table.is_constant() &&
         std::all_of(table.rows[0].begin(), table.rows[0].end(), [](auto slot) { return !slot; });
}

/// (N, 1): the slot of each row's code, 0 of code 0. What is no code is UNKNOWN.
Tensor slots_of_codes(const Tensor& code, int64_t location, int64_t severity, ScalarType carrier) {
  const int64_t rest = location << LOCATION_SHIFT | severity;
  auto known = at::bitwise_and(at::clamp(at::unsqueeze(as_dtype(code, at::kLong), 1), -1, to_int(err::unknown)),
                               to_int(err::unknown));
  auto slots = at::threshold(at::rsub(known, rest, -(1 << CODE_SHIFT)), rest, 0);
  return as_dtype(slots, bits_dtype(carrier));
}

/// Records the slots of codes in empty records.
Tensor record_in_empty(const Tensor& flags, const Tensor& slots) {
  const int64_t more = flags.size(1) - 1;
  return as_carrier(more ? at::constant_pad_nd(slots, {0, more}) : slots, flags.scalar_type());
}

/// The flags with these rows, which stay known.
Tensor known_records(RowTable table, const Tensor& flags) {
  auto records = records_of(table, flags.scalar_type(), flags);
  return KnownRows::note(std::move(records), std::move(table));
}

Tensor cloned(const Tensor& flags) {
  auto copy = at::clone(flags, at::MemoryFormat::Contiguous);
  if (const auto table = KnownRows::of(flags)) return KnownRows::note(std::move(copy), *table);
  return copy;
}

}  // namespace

Tensor bits_of(const Tensor& flags) { return as_carrier(flags, bits_dtype(flags.scalar_type())); }

Tensor slots_of(const Tensor& flags) {
  const auto words = bits_of(flags);
  return unpack(words, shifts(words));
}

RowTable known_mask(const Tensor& mask) {
  if (const auto table = KnownRows::of(mask)) return *table;
  return RowTable::of_mask(mask.dim() == 1 ? at::unsqueeze(mask, 1) : mask);
}

std::optional<RowTable> pushed_rows(const RowTable& records, const RowTable& where, const Push& push) {
  const RecordingPolicy how(push.policy);
  return records.joined(where, [&](Row row, const Row& on) {
    if (on[0]) push_slot(row.data(), push.num_slots, pack_slot(push.code, push.location, push.severity), how);
    return row;
  });
}

Tensor new_flags(const Tensor& like, int64_t num_slots, ScalarType dtype) {
  check::new_flags(like, num_slots, dtype);
  auto rows = at::slice(like.dim() == 1 ? at::unsqueeze(like, 1) : like, 1, 0, 0);
  if (rows.dim() > 2) rows = at::flatten(rows, 1, -1);
  const int64_t words = check::words_for(num_slots, dtype);
  return KnownRows::note(at::constant_pad_nd(at::zeros_like(rows, dtype, at::kStrided, like.device(), c10::nullopt,
                                                            at::MemoryFormat::Contiguous),
                                             {0, words}),
                         empty_rows(words, dtype));
}

RowTable empty_rows(int64_t words, ScalarType carrier) {
  return RowTable::same_in_all(Row(static_cast<size_t>(words * check::slots_per_word(carrier))));
}

Tensor push(const Tensor& flags, const Tensor& code, int64_t location, int64_t severity, int64_t num_slots,
            int64_t policy) {
  check::push(flags, code, location, severity, num_slots, policy);
  if (severity == 0) return cloned(flags);
  auto fresh = slots_of_codes(code, location, severity, flags.scalar_type());
  if (const auto table = KnownRows::of(flags); table && is_empty(*table)) return record_in_empty(flags, fresh);
  return record_words(flags, {fresh, severity, location}, at::ne(fresh, 0), num_slots, policy);
}

Tensor recorded(const Tensor& flags, const Push& push, const RowTable& where) {
  if (const auto table = KnownRows::of(flags))
    if (auto rows = pushed_rows(*table, where, push)) return known_records(std::move(*rows), flags);
  const auto fresh = Fresh::same(push.code, push.location, push.severity);
  return record_words(flags, fresh, mask_of(where, flags), push.num_slots, push.policy);
}

Tensor push_where(const Tensor& flags, int64_t code, int64_t location, int64_t severity, const Tensor& where,
                  int64_t num_slots, int64_t policy) {
  check::push(flags, code, location, severity, where, num_slots, policy);
  if (code == 0 || severity == 0) return cloned(flags);
  return recorded(flags, {code, location, severity, num_slots, policy}, known_mask(where));
}

Tensor push_scalar(const Tensor& flags, int64_t code, int64_t location, int64_t severity, int64_t num_slots,
                   int64_t policy) {
  check::push(flags, code, location, severity, num_slots, policy);
  if (code == 0 || severity == 0) return cloned(flags);
  const Push what{code, location, severity, num_slots, policy};
  if (const auto table = KnownRows::of(flags))
    return known_records(*pushed_rows(*table, RowTable::same_in_all({1}), what), flags);
  return record_words(flags, Fresh::same(code, location, severity), Tensor(), num_slots, policy);
}

Tensor merge(const Tensor& flags, const Tensor& other, int64_t num_slots, int64_t policy) {
  check::merge(flags, other, num_slots, policy);
  const auto theirs = KnownRows::of(other);
  if (const auto mine = KnownRows::of(flags); mine && theirs) {
    const RecordingPolicy how(policy);
    auto rows = mine->joined(*theirs, [&](Row row, const Row& more) {
      merge_slots(row.data(), num_slots, more.data(), how);
      return row;
    });
    if (rows) return known_records(std::move(*rows), flags);
  }
  if (theirs && is_empty(*theirs)) return cloned(flags);
  const auto is_used = [&](int64_t i) {
    return !theirs || std::any_of(theirs->rows.begin(), theirs->rows.end(),
                                  [i](const Row& row) { return row[static_cast<size_t>(i)] != 0; });
  };
  const auto before = bits_of(flags), by = shifts(before), fresh = unpack(bits_of(other), by);
  auto slots = unpack(before, by);
  const int64_t entries = policy & TRACK_OVERFLOW ? num_slots - 1 : num_slots;
  for (int64_t i = 0; i < entries; ++i)
    if (is_used(i)) slots = merge_slot(slots, at::slice(fresh, 1, i, i + 1), num_slots, policy);
  if (entries < num_slots && is_used(entries))
    slots = merge_overflow(slots, at::slice(fresh, 1, entries, num_slots), num_slots, policy);
  return as_carrier(pack(slots, by), flags.scalar_type());
}

Tensor clear(const Tensor& flags, int64_t code) {
  check::code("clear", flags, code);
  const auto is_meant = [code](uint16_t slot) {
    return (slot & SEVERITY_MASK) && (slot & CODE_IN_SLOT) == code << CODE_SHIFT;
  };
  if (const auto table = KnownRows::of(flags)) {
    auto rows = table->changed([&](Row row) {
      std::replace_if(row.begin(), row.end(), is_meant, uint16_t{0});
      return row;
    });
    return known_records(std::move(rows), flags);
  }
  const auto words = bits_of(flags), by = shifts(words), slots = unpack(words, by);
  const auto same_code = at::eq(at::bitwise_and(slots, CODE_IN_SLOT), code << CODE_SHIFT);
  const auto which = at::logical_and(at::ne(severity_of(slots), 0), same_code);
  return as_carrier(pack(at::masked_fill(slots, which, 0), by), flags.scalar_type());
}

}  // namespace triage::flags::composite
