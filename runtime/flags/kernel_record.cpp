// CPU kernels that make and change records. Most rows of most batches are empty, and most calls change few of them: rows are
// taken in blocks of 64, one bit a row says which of them need more than a copy, and only those are walked over.
#include <ATen/ATen.h>
#include <runtime/flags/questions.h>
#include <runtime/flags/rows.h>

#include <bit>

namespace triage::flags::cpu {
namespace {

constexpr int64_t BLOCK = 64;
constexpr int64_t GROUP = 8;  // of a block's rows, looked at as a whole first

// One bit for each of up to 64 values, the first lowest: set where the value is not 0.
template <class T>
uint64_t bits_of_nonzero(const T* values, int64_t step, int64_t count) {
  uint64_t bits = 0;
  for (int64_t first = 0; first < count; first += GROUP) {
    const int64_t last = std::min(first + GROUP, count);
    if (step == 1 && last - first == GROUP) {
      uint64_t words[sizeof(T)], any = 0;
      std::memcpy(words, values + first, sizeof(words));
      for (uint64_t word : words) any |= word;
      if (!any) continue;
    }
    for (int64_t i = first; i < last; ++i) bits |= uint64_t{values[i * step] != 0} << i;
  }
  return bits;
}

// One bit for each of up to 64 rows: set where the row is not all zero.
struct TouchedRows {
  template <int bytes>
  TRIAGE_INLINE uint64_t run(const uint16_t* slots, int64_t width, int64_t count) const {
    const auto any_in = [=](int64_t first, int64_t last) TRIAGE_INLINE_LAMBDA {
      const auto* pairs = reinterpret_cast<const uint32_t*>(slots + first * width);
      return loops::Dense<HasAny>{}.template run<bytes>(pairs, (last - first) * width / 2) != 0;
    };
    uint64_t bits = 0;
    if (!any_in(0, count)) return bits;
    for (int64_t first = 0; first < count; first += GROUP) {
      const int64_t last = std::min(first + GROUP, count);
      if (!any_in(first, last)) continue;
      for (int64_t row = first; row < last; ++row) {
        uint64_t any = 0;
        each_word(slots + row * width, width, [&](int64_t, uint64_t word) {
          any |= word;
          return true;
        });
        bits |= uint64_t{any != 0} << row;
      }
    }
    return bits;
  }
};

uint64_t bits_of_touched(const Rows& rows, int64_t first, int64_t count) {
  return on_this_machine(TouchedRows{}, static_cast<const uint16_t*>(rows[first]), rows.width, count);
}

template <class Change>
void each_row(uint64_t bits, int64_t first, Change change) {
  for (; bits; bits &= bits - 1) change(first + std::countr_zero(bits));
}

// Calls block(first, count) for the blocks of the rows of `rows`, on several threads where there are many.
template <class Block>
void each_block(const Rows& rows, Block block) {
  in_parallel(rows.count, rows.bytes(), [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += BLOCK) block(first, std::min(BLOCK, end - first));
  });
}

// A copy of `flags` in which change(row index, slots) was called for the rows with a bit in pick(first, count).
template <class Pick, class Change>
Tensor changed_rows(const Tensor& flags, Pick pick, Change change) {
  const auto from = flags.contiguous();
  auto result = new_tensor(from.sizes(), from.scalar_type());
  const Rows to(result);
  const auto* source = Rows(from).data;
  each_block(to, [&](int64_t first, int64_t count) {
    start_rows(to, source, first, first + count);
    each_row(pick(first, count), first, [&](int64_t row) { change(row, to[row]); });
  });
  return result;
}

// What one push makes of empty rows, made once where rows are small: then a block of them is one copy.
struct EmptyRows {
  EmptyRows(const Rows& rows, uint16_t slot, const Recording& how) : small(rows.width * BLOCK <= MOST_SLOTS) {
    push_entry(&first_slot, 1, slot, how);
    if (!small) return;
    const int64_t count = std::min(BLOCK, rows.count);
    std::fill_n(slots, rows.width * count, uint16_t{0});
    for (int64_t row = 0; row < count; ++row) slots[row * rows.width] = first_slot;
  }
  void write(const Rows& rows, int64_t first, int64_t count) const {
    if (small) {
      std::memcpy(rows[first], slots, static_cast<size_t>(count) * rows.bytes());
    } else {
      start_rows(rows, nullptr, first, first + count);
      for (int64_t row = first; row < first + count; ++row) *rows[row] = first_slot;
    }
  }

 private:
  static constexpr int64_t MOST_SLOTS = BLOCK * 16;
  bool small;
  uint16_t first_slot = 0;
  uint16_t slots[MOST_SLOTS];
};

template <class T>
Tensor push_codes(const Tensor& flags, const Tensor& code, int64_t location, int64_t severity, int64_t num_slots,
                  const Recording& how) {
  const auto* codes = static_cast<const T*>(code.data_ptr());
  const int64_t step = code.stride(0);
  return changed_rows(
      flags, [=](int64_t first, int64_t count) { return bits_of_nonzero(codes + first * step, step, count); },
      [=](int64_t row, uint16_t* slots) {
        const auto value = static_cast<int64_t>(codes[row * step]);
        const bool known = value > 0 && value <= 15;
        push_slot(slots, num_slots, pack_slot(known ? value : err::unknown, location, severity), how);
      });
}

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
  const auto* mask = static_cast<const bool*>(where.data_ptr());
  const int64_t step = where.stride(0);
  const Recording how(policy);
  const uint16_t slot = pack_slot(code, location, severity);
  return changed_rows(
      flags, [=](int64_t first, int64_t count) { return bits_of_nonzero(mask + first * step, step, count); },
      [=](int64_t, uint16_t* slots) { push_slot(slots, num_slots, slot, how); });
}

Tensor push_scalar(const Tensor& flags, int64_t code, int64_t location, int64_t severity, int64_t num_slots,
                   int64_t policy) {
  check::push(flags, code, location, severity, num_slots, policy);
  const Recording how(policy);
  const uint16_t slot = pack_slot(code, location, severity);
  const auto from = flags.contiguous();
  auto result = new_tensor(from.sizes(), from.scalar_type());
  const Rows before(from), after(result);
  const EmptyRows pushed(after, slot, how);
  each_block(after, [&](int64_t first, int64_t count) {
    const uint64_t touched = bits_of_touched(before, first, count);
    if (std::popcount(touched) > BLOCK / 4) {  // few rows are empty: all are as quickly walked over
      start_rows(after, before.data, first, first + count);
      for (int64_t row = first; row < first + count; ++row) push_slot(after[row], num_slots, slot, how);
      return;
    }
    pushed.write(after, first, count);
    each_row(touched, first, [&](int64_t row) {
      std::memcpy(after[row], before[row], after.bytes());
      push_slot(after[row], num_slots, slot, how);
    });
  });
  return result;
}

Tensor merge(const Tensor& flags, const Tensor& other, int64_t num_slots, int64_t policy) {
  check::merge(flags, other, num_slots, policy);
  const auto contiguous = other.contiguous();
  const Rows fresh(contiguous);
  const Recording how(policy);
  return changed_rows(
      flags, [=](int64_t first, int64_t count) { return bits_of_touched(fresh, first, count); },
      [=](int64_t row, uint16_t* slots) { merge_slots(slots, num_slots, fresh[row], how); });
}

Tensor clear(const Tensor& flags, int64_t code) {
  check::code("clear", flags, code);
  const auto contiguous = flags.contiguous();
  const Rows before(contiguous);
  const uint64_t wanted = EACH_SLOT * static_cast<uint64_t>(code << CODE_SHIFT);
  return changed_rows(
      contiguous, [=](int64_t first, int64_t count) { return bits_of_touched(before, first, count); },
      [=](int64_t, uint16_t* slots) {
        each_word(slots, before.width, [=](int64_t i, uint64_t word) {
          const uint64_t hits = zero_lanes((word & EACH_SLOT * CODE_MASK) ^ wanted) & live_lanes(word);
          if (hits) store_four(slots + i, word & ~(hits * SLOT_MASK), before.width - i);
          return true;
        });
      });
}

}  // namespace triage::flags::cpu
