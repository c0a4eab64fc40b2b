// CPU kernels that make and change records.
#include <ATen/ATen.h>
#include <runtime/flags/rows.h>

namespace triage::flags::cpu {
namespace {

// A copy of `flags` in which each row was given to `change(row index, slots)`; copied block by block, so that a row is
// changed while it is in the cache.
template <class Change>
Tensor changed_rows(const Tensor& flags, Change change) {
  const auto from = flags.contiguous();
  auto result = at::empty(from.sizes(), from.options());
  const Rows to(result);
  const auto* source = Rows(from).data;
  constexpr int64_t block = 64;
  at::parallel_for(0, to.count, rows_per_task(static_cast<int64_t>(to.bytes())), [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += block) {
      const int64_t last = std::min(first + block, end);
      start_rows(to, source, first, last);
      for (int64_t row = first; row < last; ++row) change(row, to[row]);
    }
  });
  return result;
}

void check_push(const Tensor& flags, int64_t code, int64_t location, int64_t severity, int64_t num_slots,
                int64_t policy) {
  check::record("push", flags, num_slots, policy);
  check::code("push", code);
  check::location("push", location);
  check::severity("push", severity);
}

}  // namespace

Tensor new_flags(const Tensor& like, int64_t num_slots, ScalarType dtype) {
  check::batch_in_front("new", "like", like);
  check::num_slots("new", num_slots);
  check::carrier("new", dtype);
  auto result = at::empty({like.size(0), check::words_for(num_slots, dtype)}, at::TensorOptions(dtype));
  start_rows(Rows(result), nullptr, 0, result.size(0));
  return result;
}

Tensor push(const Tensor& flags, const Tensor& code, int64_t location, int64_t severity, int64_t num_slots,
            int64_t policy) {
  check::record("push", flags, num_slots, policy);
  check::code_tensor("push", code, flags);
  check::location("push", location);
  check::severity("push", severity);
  const auto wide = code.scalar_type() == at::kLong && code.is_contiguous() ? code : code.to(at::kLong).contiguous();
  const auto* codes = static_cast<const int64_t*>(wide.data_ptr());
  const Recording how(check::unpack(policy));
  return changed_rows(flags, [=](int64_t row, uint16_t* slots) {
    if (codes[row] == 0) return;
    const bool known = codes[row] > 0 && codes[row] <= 15;
    push_slot(slots, num_slots, pack_slot(known ? codes[row] : err::unknown, location, severity), how);
  });
}

Tensor push_where(const Tensor& flags, int64_t code, int64_t location, int64_t severity, const Tensor& where,
                  int64_t num_slots, int64_t policy) {
  check_push(flags, code, location, severity, num_slots, policy);
  check::mask("push", "where", where, flags);
  const auto* mask = static_cast<const bool*>(where.data_ptr());
  const int64_t step = where.stride(0);
  const Recording how(check::unpack(policy));
  const uint16_t slot = pack_slot(code, location, severity);
  return changed_rows(flags, [=](int64_t row, uint16_t* slots) {
    if (mask[row * step]) push_slot(slots, num_slots, slot, how);
  });
}

Tensor push_scalar(const Tensor& flags, int64_t code, int64_t location, int64_t severity, int64_t num_slots,
                   int64_t policy) {
  check_push(flags, code, location, severity, num_slots, policy);
  const Recording how(check::unpack(policy));
  const uint16_t slot = pack_slot(code, location, severity);
  return changed_rows(flags, [=](int64_t, uint16_t* slots) { push_slot(slots, num_slots, slot, how); });
}

Tensor merge(const Tensor& flags, const Tensor& other, int64_t num_slots, int64_t policy) {
  check::record("merge", flags, num_slots, policy);
  check::same_form("merge", flags, other);
  const auto from = other.contiguous();
  const Rows fresh(from);
  const Recording how(check::unpack(policy));
  return changed_rows(flags, [=](int64_t row, uint16_t* slots) {
    const uint16_t* extra = fresh[row];
    for (int64_t i = 0; i < num_slots; i += 4) {
      if (!four_slots(extra + i, num_slots - i)) continue;
      for (int64_t k = i; k < std::min(i + 4, num_slots); ++k) push_slot(slots, num_slots, extra[k], how);
    }
  });
}

Tensor clear(const Tensor& flags, int64_t code) {
  check::flags("clear", flags);
  check::code("clear", code);
  const int64_t width = flags.size(1) * check::slots_per_word(flags.scalar_type());
  const uint64_t wanted = EACH_SLOT * static_cast<uint64_t>(code << CODE_SHIFT);
  return changed_rows(flags, [=](int64_t, uint16_t* slots) {
    for (int64_t i = 0; i < width; i += 4) {
      const uint64_t word = four_slots(slots + i, width - i);
      if (!word) continue;
      const uint64_t hits = zero_lanes((word & EACH_SLOT * CODE_MASK) ^ wanted) & live_lanes(word);
      if (hits) store_four(slots + i, word & ~(hits * SLOT_MASK), width - i);
    }
  });
}

}  // namespace triage::flags::cpu
