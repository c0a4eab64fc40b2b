// CPU kernels that make and change records. Most rows of most batches are empty, and most calls change few of them: a stretch
// of rows is copied as a whole, and while it is in the cache, those that need more than that are picked out and changed.
#include <ATen/ATen.h>
#include <runtime/flags/nonzero.h>
#include <runtime/flags/record_groups.h>
#include <runtime/flags/rows.h>

namespace triage::flags::cpu {
namespace {

// Calls stretch(first, last) for stretches of `most` rows, on several threads where there are many.
template <class Stretch>
void each_stretch(const Rows& rows, int64_t most, Stretch stretch) {
  in_parallel(rows.count, rows.bytes(), [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += most) stretch(first, std::min(first + most, end));
  });
}

// Records in the rows [first, last) that hold some of the places what `fresh` says, several at a time.
template <class Fresh>
void record_groups(const Rows& before, const Rows& after, int64_t first, int64_t last, const Places& places,
                   const Fresh& fresh, int64_t num_slots, const Recording& how) {
  const uint16_t* from = before[first];
  on_this_machine(loops::RecordGroups<Fresh>{fresh, num_slots, how}, from, after[first], after.width, last - first,
                  static_cast<const uint64_t*>(places.bits));
}

// What is pushed into each row of a stretch: slots that lie `step` apart, with room for a vector to read beyond them.
struct FreshSlots {
  uint16_t slots[Places::MOST + loops::MOST_LANES];
  int64_t step;
};

// A copy of `flags` in which a slot was pushed into each row whose value is not 0, of values `step` apart. slot_of(row) tells
// which; prepare(fresh, places, first) where several rows are done at a time.
template <class T, class SlotOf, class Prepare>
Tensor pushed_rows(const Tensor& flags, const T* values, int64_t step, int64_t num_slots, const Recording& how,
                   SlotOf slot_of, Prepare prepare) {
  const auto from = flags.contiguous();
  auto result = new_tensor(from.sizes(), from.scalar_type());
  const Rows before(from), after(result);
  const bool together = in_groups(after.width, how);
  const int64_t rows = Places::TOGETHER;
  each_stretch(after, std::max(rows, rows_in_stretch(after) / rows * rows), [&](int64_t first, int64_t last) {
    Places places;
    start_rows(after, before.data, first, last);
    find_values(places, values + first * step, step, last - first);
    if (!together)
      return places.each([&](int64_t i) { push_slot(after[first + i], num_slots, slot_of(first + i), how); });
    FreshSlots fresh;
    prepare(fresh, places, first);
    record_groups(before, after, first, last, places, loops::SlotOfRecord{fresh.slots, fresh.step}, num_slots, how);
  });
  return result;
}

// A slot that counts, or 0.
uint16_t error_slot(int64_t code, int64_t location, int64_t severity) {
  return code && severity ? pack_slot(code, location, severity) : uint16_t{0};
}

template <class T>
Tensor push_codes(const Tensor& flags, const Tensor& code, int64_t location, int64_t severity, int64_t num_slots,
                  const Recording& how) {
  const auto* codes = static_cast<const T*>(code.data_ptr());
  const int64_t step = code.stride(0);
  const auto slot_of = [=](int64_t row) {
    const auto value = static_cast<int64_t>(codes[row * step]);
    const bool known = value > 0 && value <= 15;
    return error_slot(known ? value : err::unknown, location, severity);
  };
  return pushed_rows(flags, codes, step, num_slots, how, slot_of,
                     [&](FreshSlots& fresh, const Places& places, int64_t first) {
                       fresh.step = 1;
                       places.each([&](int64_t i) { fresh.slots[i] = slot_of(first + i); });
                     });
}

// Calls visit(row) for the rows of [first, last) that hold some of the places, which are words counted from the first of them;
// for all, where few are left out.
template <class Visit>
void each_row_of(const Places& places, const Rows& rows, int64_t first, int64_t last, Visit visit) {
  int64_t next = first;
  if (places.found > (last - first) / 4) {
    for (; next < last; ++next) visit(next);
    return;
  }
  const auto width = static_cast<uint32_t>(rows.width);
  places.each([&](int64_t word) {
    const uint32_t slot = static_cast<uint32_t>(word) * 4, to = (slot + 3) / width;
    const uint32_t from = width % 4 ? slot / width : to;  // a word may belong to two rows
    for (next = std::max(next, first + from); next < std::min(first + to + 1, last); ++next) visit(next);
  });
}

// What one push makes of empty rows, as many as fit: a stretch of such rows is one copy.
struct EmptyRows {
  static constexpr int64_t MOST_SLOTS = 1024;
  EmptyRows(const Rows& rows, uint16_t slot, const Recording& how) : together(MOST_SLOTS / rows.width) {
    const int64_t count = std::clamp<int64_t>(rows.count, 1, together);
    std::fill_n(slots, rows.width * count, uint16_t{0});
    push_entry(slots, 1, slot, how);
    for (int64_t row = 1; row < count; ++row) slots[row * rows.width] = slots[0];
  }
  int64_t together;
  uint16_t slots[MOST_SLOTS];
};

struct ClearCode {
  uint16_t code;  // in its place in a slot
  template <int>
  TRIAGE_INLINE void run(const uint16_t* from, uint16_t* to, int64_t count) const {
    constexpr auto codes = static_cast<uint16_t>(CODE_IN_SLOT), severities = static_cast<uint16_t>(SEVERITY_MASK);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i)
      to[i] = ((from[i] & codes) == code) & ((from[i] & severities) != 0) ? uint16_t{0} : from[i];
  }
};

}  // namespace

Tensor new_flags(const Tensor& like, int64_t num_slots, ScalarType dtype) {
  check::new_flags(like, num_slots, dtype);
  auto result = new_tensor({like.size(0), check::words_for(num_slots, dtype)}, dtype);
  start_rows(Rows(result), nullptr, 0, result.size(0));
  return result;
}

Tensor push(const Tensor& flags, const Tensor& code, int64_t location, int64_t severity, int64_t num_slots,
            int64_t policy) {
  check::push(flags, code, location, severity, num_slots, policy);
  const Recording how(policy);
  switch (code.scalar_type()) {
    case ScalarType::Long:
      return push_codes<int64_t>(flags, code, location, severity, num_slots, how);
    case ScalarType::Int:
      return push_codes<int32_t>(flags, code, location, severity, num_slots, how);
    case ScalarType::Short:
      return push_codes<int16_t>(flags, code, location, severity, num_slots, how);
    case ScalarType::Char:
      return push_codes<int8_t>(flags, code, location, severity, num_slots, how);
    case ScalarType::Byte:
      return push_codes<uint8_t>(flags, code, location, severity, num_slots, how);
    default:
      return push_codes<int64_t>(flags, code.to(at::kLong), location, severity, num_slots, how);
  }
}

Tensor push_where(const Tensor& flags, int64_t code, int64_t location, int64_t severity, const Tensor& where,
                  int64_t num_slots, int64_t policy) {
  check::push(flags, code, location, severity, where, num_slots, policy);
  const Recording how(policy);
  const uint16_t slot = error_slot(code, location, severity);
  return pushed_rows(
      flags, static_cast<const uint8_t*>(where.data_ptr()), where.stride(0), num_slots, how,
      [=](int64_t) { return slot; },
      [=](FreshSlots& fresh, const Places&, int64_t) {
        fresh.step = 0;
        std::fill_n(fresh.slots, loops::MOST_LANES, slot);
      });
}

Tensor push_scalar(const Tensor& flags, int64_t code, int64_t location, int64_t severity, int64_t num_slots,
                   int64_t policy) {
  check::push(flags, code, location, severity, num_slots, policy);
  const Recording how(policy);
  const uint16_t slot = error_slot(code, location, severity);
  const auto from = flags.contiguous();
  auto result = new_tensor(from.sizes(), from.scalar_type());
  const Rows before(from), after(result);
  const auto push_rows = [&](int64_t first, int64_t last) {
    start_rows(after, before.data, first, last);
    for (int64_t row = first; row < last; ++row) push_slot(after[row], num_slots, slot, how);
  };
  if (after.width > EmptyRows::MOST_SLOTS) {
    each_stretch(after, 1, push_rows);
    return result;
  }
  const EmptyRows pushed(after, slot, how);
  const bool together = in_groups(after.width, how);
  const bool repeats = Places::TOGETHER * 4 % after.width == 0 && after.count >= pushed.together;
  each_stretch(after, repeats ? rows_in_stretch(after) : pushed.together, [&](int64_t first, int64_t last) {
    Places places;
    find_words(places, before[first], (last - first) * before.width, pushed.slots, after[first], repeats ? 0 : 1);
    if (together) return record_groups(before, after, first, last, places, loops::SameSlot{slot}, num_slots, how);
    each_row_of(places, before, first, last, [&](int64_t row) { push_rows(row, row + 1); });
  });
  return result;
}

Tensor merge(const Tensor& flags, const Tensor& other, int64_t num_slots, int64_t policy) {
  check::merge(flags, other, num_slots, policy);
  const Recording how(policy);
  const auto from = flags.contiguous(), more = other.contiguous();
  auto result = new_tensor(from.sizes(), from.scalar_type());
  const Rows before(from), fresh(more), after(result);
  const bool together = in_groups(after.width, how);
  each_stretch(after, rows_in_stretch(after), [&](int64_t first, int64_t last) {
    Places places;
    find_words(places, fresh[first], (last - first) * fresh.width, before[first], after[first]);
    if (together) {
      const loops::SlotsOfOthers others{fresh[first], fresh.width};
      return record_groups(before, after, first, last, places, others, num_slots, how);
    }
    each_row_of(places, fresh, first, last, [&](int64_t row) { merge_slots(after[row], num_slots, fresh[row], how); });
  });
  return result;
}

Tensor clear(const Tensor& flags, int64_t code) {
  check::code("clear", flags, code);
  const auto from = flags.contiguous();
  auto result = new_tensor(from.sizes(), from.scalar_type());
  const Rows before(from), after(result);
  const ClearCode loop{static_cast<uint16_t>(code << CODE_SHIFT)};
  in_parallel(after.count, after.bytes(), [&](int64_t begin, int64_t end) {
    const uint16_t* slots = before[begin];
    on_this_machine(loop, slots, after[begin], (end - begin) * after.width);
  });
  return result;
}

}  // namespace triage::flags::cpu
