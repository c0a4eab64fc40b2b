// CPU kernels of records. Those that ask about them make one pass over the words. Of those that make and change them:
// most rows of most batches are empty, and most calls change few of them: a stretch of rows is copied as a whole, and
// while it is in the cache, those that need more than that are picked out and changed. The copy comes before the look,
// never after it: what is changed right behind a copy waits for it.
#include <ATen/ATen.h>

#include <atomic>

#include "runtime/flags/kernels/nonzero.h"
#include "runtime/flags/kernels/record_groups.h"
#include "runtime/flags/records/questions.h"
#include "runtime/flags/records/rows.h"

namespace triage::flags::cpu {
namespace {

// So few are done sooner one by one than several at a time, which takes some preparation.
constexpr int64_t FEW = 2;

// Flags, and the result that errors are recorded in.
struct FlagsUpdate {
  FlagsUpdate(const Tensor& flags, int64_t slots, int64_t policy)
      : from(flags.expect_contiguous()),
        result(new_tensor(from->sizes(), from->scalar_type())),
        before(*from),
        after(result, before),
        num_slots(slots),
        how(policy),
        in_groups(cpu::in_groups(after.width, how)) {}

  /// Records what `fresh` says in those of the rows [first, last) that hold some of the places, several rows at a time:
  /// from `source` to the result, which are the same where it was copied already.
  template <class Fresh>
  void record(const SlotRows& source, int64_t first, int64_t last, const NonzeroPlaces& places,
              const Fresh& fresh) const {
    const uint16_t* from_there = source[first];
    on_this_machine(loops::RecordGroups<Fresh>{fresh, num_slots, how}, from_there, after[first], after.width,
                    last - first, &places);
  }
  void copy(int64_t first, int64_t last) const { start_rows(after, before.data, first, last); }
  void push(int64_t row, uint16_t slot) const { push_slot(after[row], num_slots, slot, how); }

  c10::MaybeOwned<Tensor> from;
  Tensor result;
  SlotRows before, after;
  int64_t num_slots;
  RecordingPolicy how;
  bool in_groups;
};

// Calls stretch(first, last) for stretches of `most` rows, on several threads where there are many.
template <class Stretch>
void each_stretch(const SlotRows& rows, int64_t most, Stretch stretch) {
  in_parallel(rows.count, rows.bytes(), [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += most) stretch(first, std::min(first + most, end));
  });
}

// What is pushed into each row of a stretch: slots that lie `step` apart, with room for a vector to read beyond them.
struct FreshSlots {
  uint16_t slots[NonzeroPlaces::MOST + loops::MOST_LANES];
  int64_t step;
};

// A copy of the flags in which a slot is pushed into each row whose value is not 0, of values `step` apart.
// slot_of(row) tells which; prepare(fresh, places, first) where several rows are done at a time.
template <class T, class SlotOf, class Prepare>
Tensor pushed_rows(FlagsUpdate& change, const T* values, int64_t step, SlotOf slot_of, Prepare prepare) {
  constexpr int64_t rows = NonzeroPlaces::TOGETHER;
  const int64_t most = std::max(rows, rows_in_stretch(change.after) / rows * rows);
  each_stretch(change.after, most, [&](int64_t first, int64_t last) {
    NonzeroPlaces places;
    change.copy(first, last);
    find_values(places, values + first * step, step, last - first);
    if (!change.in_groups || places.found <= FEW)
      return places.each([&](int64_t i) { change.push(first + i, slot_of(first + i)); });
    FreshSlots fresh;
    prepare(fresh, places, first);
    change.record(change.after, first, last, places, loops::SlotOfRecord{fresh.slots, fresh.step});
  });
  return std::move(change.result);
}

// A slot that counts, or 0.
uint16_t error_slot(int64_t code, int64_t location, int64_t severity) {
  return code && severity ? pack_slot(code, location, severity) : uint16_t{0};
}

template <class T>
Tensor push_codes(FlagsUpdate& change, const Tensor& code, int64_t location, int64_t severity) {
  const auto* codes = static_cast<const T*>(code.data_ptr());
  const int64_t step = code.stride(0);
  const auto slot_of = [=](int64_t row) {
    const auto value = static_cast<int64_t>(codes[row * step]);
    const bool known = value > 0 && value <= 15;
    return error_slot(known ? value : to_int(err::unknown), location, severity);
  };
  return pushed_rows(change, codes, step, slot_of, [&](FreshSlots& fresh, const NonzeroPlaces& places, int64_t first) {
    fresh.step = 1;
    places.each([&](int64_t i) { fresh.slots[i] = slot_of(first + i); });
  });
}

// Calls visit(row) for the rows of [first, last) that hold some of the places, which are words counted from the first
// of them.
template <class Visit>
void each_row_of(const NonzeroPlaces& places, const SlotRows& rows, int64_t first, int64_t last, Visit visit) {
  int64_t next = first;
  const auto width = static_cast<uint32_t>(rows.width);
  places.each([&](int64_t word) {
    const uint32_t slot = static_cast<uint32_t>(word) * 4, to = (slot + 3) / width;
    const uint32_t from = width % 4 ? slot / width : to;  // a word may belong to two rows
    for (next = std::max(next, first + from); next < std::min(first + to + 1, last); ++next) visit(next);
  });
}

// Makes the rows [first, last) what one push makes of an empty one.
void fill_pushed(const SlotRows& rows, int64_t first, int64_t last, uint16_t slot, const RecordingPolicy& how) {
  start_rows(rows, nullptr, first, first + 1);
  push_entry(rows[first], 1, slot, how);
  for (int64_t done = 1; done < last - first; done *= 2)
    std::memcpy(rows[first + done], rows[first],
                static_cast<size_t>(std::min(done, last - first - done)) * rows.bytes());
}

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
  start_rows(SlotRows(result), nullptr, 0, result.size(0));
  return result;
}

Tensor push(const Tensor& flags, const Tensor& code, int64_t location, int64_t severity, int64_t num_slots,
            int64_t policy) {
  check::push(flags, code, location, severity, num_slots, policy);
  FlagsUpdate change(flags, num_slots, policy);
  switch (code.scalar_type()) {
    case ScalarType::Long:
      return push_codes<int64_t>(change, code, location, severity);
    case ScalarType::Int:
      return push_codes<int32_t>(change, code, location, severity);
    case ScalarType::Short:
      return push_codes<int16_t>(change, code, location, severity);
    case ScalarType::Char:
      return push_codes<int8_t>(change, code, location, severity);
    case ScalarType::Byte:
      return push_codes<uint8_t>(change, code, location, severity);
    default:
      return push_codes<int64_t>(change, code.to(at::kLong), location, severity);
  }
}

Tensor push_where(const Tensor& flags, int64_t code, int64_t location, int64_t severity, const Tensor& where,
                  int64_t num_slots, int64_t policy) {
  check::push(flags, code, location, severity, where, num_slots, policy);
  FlagsUpdate change(flags, num_slots, policy);
  const uint16_t slot = error_slot(code, location, severity);
  return pushed_rows(
      change, static_cast<const uint8_t*>(where.data_ptr()), where.stride(0), [=](int64_t) { return slot; },
      [=](FreshSlots& fresh, const NonzeroPlaces&, int64_t) {
        fresh.step = 0;
        std::fill_n(fresh.slots, loops::MOST_LANES, slot);
      });
}

Tensor push_scalar(const Tensor& flags, int64_t code, int64_t location, int64_t severity, int64_t num_slots,
                   int64_t policy) {
  check::push(flags, code, location, severity, num_slots, policy);
  FlagsUpdate change(flags, num_slots, policy);
  const SlotRows &before = change.before, &after = change.after;
  const uint16_t slot = error_slot(code, location, severity);
  const int64_t most = rows_in_stretch(after);
  in_parallel(after.count, after.bytes(), [&](int64_t begin, int64_t end) {
    // Last stretch first: until the end the first one has what most rows become.
    fill_pushed(after, begin, std::min(begin + most, end), slot, change.how);
    for (int64_t first = begin + (end - begin - 1) / most * most; first >= begin; first -= most) {
      const int64_t last = std::min(first + most, end);
      NonzeroPlaces places;
      if (first > begin) std::memcpy(after[first], after[begin], static_cast<size_t>(last - first) * after.bytes());
      find_words(places, before[first], (last - first) * before.width);
      if (change.in_groups && places.found > FEW) {
        change.record(before, first, last, places, loops::SameSlot{slot});
      } else {
        each_row_of(places, before, first, last, [&](int64_t row) {
          change.copy(row, row + 1);
          change.push(row, slot);
        });
      }
    }
  });
  return std::move(change.result);
}

Tensor merge(const Tensor& flags, const Tensor& other, int64_t num_slots, int64_t policy) {
  check::merge(flags, other, num_slots, policy);
  FlagsUpdate change(flags, num_slots, policy);
  const auto more = other.expect_contiguous();
  const SlotRows others(*more, change.before);
  each_stretch(change.after, rows_in_stretch(change.after), [&](int64_t first, int64_t last) {
    NonzeroPlaces places;
    change.copy(first, last);
    find_words(places, others[first], (last - first) * others.width);
    if (change.in_groups && places.found > FEW) {
      const loops::SlotsOfOthers fresh{others[first], others.width};
      return change.record(change.after, first, last, places, fresh);
    }
    each_row_of(places, others, first, last,
                [&](int64_t row) { merge_slots(change.after[row], num_slots, others[row], change.how); });
  });
  return std::move(change.result);
}

Tensor clear(const Tensor& flags, int64_t code) {
  check::code("clear", flags, code);
  const auto from = flags.expect_contiguous();
  auto result = new_tensor(from->sizes(), from->scalar_type());
  const SlotRows before(*from), after(result, before);
  const ClearCode loop{static_cast<uint16_t>(code << CODE_SHIFT)};
  in_parallel(after.count, after.bytes(), [&](int64_t begin, int64_t end) {
    const uint16_t* slots = before[begin];
    on_this_machine(loop, slots, after[begin], (end - begin) * after.width);
  });
  return result;
}

namespace {

template <class Answer>
Tensor answers_for(const Tensor& flags) {
  return new_tensor({flags.size(0)}, c10::CppTypeToScalarType<Answer>::value);
}

template <class Answer, class Question>
Tensor ask(const Tensor& flags, const Question& question) {
  const auto from = flags.expect_contiguous();
  auto result = answers_for<Answer>(*from);
  const SlotRows rows(*from);
  const AskRecords<Question, Answer> loop{question};
  auto* out = static_cast<Answer*>(result.data_ptr());
  const auto* slots = static_cast<const uint16_t*>(rows.data);
  in_parallel(rows.count, rows.bytes(),
              [&](int64_t begin, int64_t end) { on_this_machine(loop, slots, rows.width, begin, end, out); });
  return result;
}

// Ends at the first stretch with an error in it.
bool any_error(const Tensor& flags) {
  const auto from = flags.expect_contiguous();
  const SlotRows rows(*from);
  std::atomic<bool> found{false};
  in_parallel(rows.count, rows.bytes(), [&](int64_t begin, int64_t end) {
    const int64_t stretch = rows_in_stretch(rows);
    for (int64_t first = begin; first < end && !found.load(std::memory_order_relaxed); first += stretch) {
      if (any_live(rows, first, std::min(first + stretch, end))) found.store(true, std::memory_order_relaxed);
    }
  });
  return found.load();
}

Tensor scalar(bool value) {
  auto result = new_tensor({}, at::kBool);
  *static_cast<bool*>(result.data_ptr()) = value;
  return result;
}

template <class Answer>
Tensor slot_field(const Tensor& flags, int64_t index, int64_t shift, int64_t mask) {
  const auto from = flags.expect_contiguous();
  const SlotRows rows(*from);
  auto result = answers_for<Answer>(*from);
  auto* out = static_cast<Answer*>(result.data_ptr());
  in_parallel(rows.count, rows.bytes(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) out[row] = static_cast<Answer>(rows[row][index] >> shift & mask);
  });
  return result;
}

}  // namespace

Tensor is_err(const Tensor& flags) {
  check::flags("is_err", flags);
  return ask<bool>(flags, IsErr{});
}

Tensor is_ok(const Tensor& flags) {
  check::flags("is_ok", flags);
  return ask<bool>(flags, IsOk{});
}

Tensor has_critical(const Tensor& flags) {
  check::flags("has_critical", flags);
  return ask<bool>(flags, HasCritical{});
}

Tensor all_ok(const Tensor& flags) {
  check::flags("all_ok", flags);
  return scalar(!any_error(flags));
}

Tensor any_err(const Tensor& flags) {
  check::flags("any_err", flags);
  return scalar(any_error(flags));
}

Tensor count_errors(const Tensor& flags) {
  check::flags("count_errors", flags);
  return ask<int32_t>(flags, CountErrors{});
}

Tensor max_severity(const Tensor& flags) {
  check::flags("max_severity", flags);
  return ask<int64_t>(flags, MaxSeverity{});
}

Tensor get_first_code(const Tensor& flags) {
  check::flags("get_first_code", flags);
  return slot_field<int32_t>(flags, 0, CODE_SHIFT, 0xF);
}

Tensor get_first_location(const Tensor& flags) {
  check::flags("get_first_location", flags);
  return slot_field<int32_t>(flags, 0, LOCATION_SHIFT, 0x3FF);
}

Tensor get_first_severity(const Tensor& flags) {
  check::flags("get_first_severity", flags);
  return slot_field<int32_t>(flags, 0, 0, SEVERITY_MASK);
}

Tensor get_slot(const Tensor& flags, int64_t index) {
  check::slot("get_slot", flags, index);
  return slot_field<int64_t>(flags, index, 0, SLOT_MASK);
}

Tensor has_code(const Tensor& flags, int64_t code) {
  check::code("has_code", flags, code);
  return ask<bool>(flags, HasBits(CODE_IN_SLOT, code << CODE_SHIFT));
}

Tensor has_domain(const Tensor& flags, int64_t domain) {
  check::domain("has_domain", flags, domain);
  return ask<bool>(flags, HasBits(0xC << CODE_SHIFT, domain << (CODE_SHIFT + 2)));
}

Tensor match(const Tensor& flags, int64_t codes, int64_t min_severity) {
  check::codes("match", flags, codes, min_severity);
  if (codes == 0xFFFF && min_severity <= 1) return is_err(flags);
  return ask<bool>(flags, Matches{codes, min_severity});
}

}  // namespace triage::flags::cpu
