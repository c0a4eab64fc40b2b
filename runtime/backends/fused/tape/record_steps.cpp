#include "runtime/backends/fused/tape/record_steps.h"

#include <runtime/flags/slots.h>

#include <cstring>

#include "runtime/backends/fused/support/numbers.h"

namespace triage::fused {
namespace {

using namespace triage::flags;  // NOLINT: records

/// Where the numbers of the opcode begin.
constexpr int64_t kOwn = 4;

struct Records {
  const int64_t* numbers;
  int64_t width() const { return numbers[0]; }
  int64_t own(int64_t i) const { return numbers[kOwn + i]; }
  template <class Memory>
  auto* at(Memory* memory, int64_t i) const {
    using Slot = std::conditional_t<std::is_const_v<Memory>, const uint16_t, uint16_t>;
    return static_cast<Slot*>(memory) + i * width();
  }
};

template <class Visit>
void each_entry(const uint16_t* slots, int64_t width, const Visit& visit) {
  each_error_slot(slots, width, [&](int64_t, uint16_t slot) { visit(slot); });
}

bool is_err(const uint16_t* slots, int64_t width) {
  uint64_t any = 0;
  for (int64_t i = 0; i < width; i += 4) any |= four_slots(slots + i, width - i);
  return (any & SEVERITIES) != 0;
}

int64_t whole_at(const void* memory, Type type, int64_t i) {
  switch (type) {
    case Type::boolean:
    case Type::u8:
      return static_cast<const uint8_t*>(memory)[i];
    case Type::i8:
      return static_cast<const int8_t*>(memory)[i];
    case Type::i16:
      return static_cast<const int16_t*>(memory)[i];
    case Type::i32:
      return static_cast<const int32_t*>(memory)[i];
    case Type::u32:
      return static_cast<const uint32_t*>(memory)[i];
    default:
      return static_cast<const int64_t*>(memory)[i];
  }
}

/// Copied first, changed then: rows without errors are one copy.
void push(void* out, const void* const* in, int64_t n, const int64_t* numbers) {
  const Records records{numbers};
  const Recording how(records.own(3));
  for (int64_t i = 0; i < n; ++i) {
    uint16_t* const slots = records.at(out, i);
    std::memcpy(slots, records.at(in[0], i), static_cast<size_t>(records.width()) * 2);
    if (!static_cast<const uint8_t*>(in[1])[numbers[2] ? 0 : i]) continue;
    const int64_t code = whole_at(in[2], static_cast<Type>(numbers[1]), numbers[3] ? 0 : i);
    const bool known = code >= 0 && code <= 15;
    push_slot(slots, records.own(0), pack_slot(known ? code : 15, records.own(1), records.own(2)), how);
  }
}

void merge(void* out, const void* const* in, int64_t n, const int64_t* numbers) {
  const Records records{numbers};
  const Recording how(records.own(1));
  for (int64_t i = 0; i < n; ++i) {
    uint16_t* const slots = records.at(out, i);
    std::memcpy(slots, records.at(in[0], i), static_cast<size_t>(records.width()) * 2);
    merge_slots(slots, records.own(0), records.at(in[1], i), how);
  }
}

void clear(void* out, const void* const* in, int64_t n, const int64_t* numbers) {
  const Records records{numbers};
  for (int64_t i = 0; i < n; ++i) {
    uint16_t* const slots = records.at(out, i);
    std::memcpy(slots, records.at(in[0], i), static_cast<size_t>(records.width()) * 2);
    for (int64_t k = 0; k < records.width(); ++k)
      if ((slots[k] & SEVERITY_MASK) && (slots[k] & CODE_IN_SLOT) >> CODE_SHIFT == records.own(0)) slots[k] = 0;
  }
}

/// One value of each record.
template <class Result, class Ask>
void ask(void* out, const void* const* in, int64_t n, const int64_t* numbers, const Ask& of) {
  const Records records{numbers};
  for (int64_t i = 0; i < n; ++i) static_cast<Result*>(out)[i] = static_cast<Result>(of(records.at(in[0], i), records));
}

void ask_is_err(void* out, const void* const* in, int64_t n, const int64_t* numbers) {
  ask<uint8_t>(out, in, n, numbers, [](const uint16_t* slots, const Records& r) { return is_err(slots, r.width()); });
}
void ask_match(void* out, const void* const* in, int64_t n, const int64_t* numbers) {
  ask<uint8_t>(out, in, n, numbers, [](const uint16_t* slots, const Records& r) {
    bool found = false;
    each_entry(slots, r.width(), [&](uint16_t slot) {
      found |= (r.own(0) >> ((slot & CODE_IN_SLOT) >> CODE_SHIFT) & 1) && (slot & SEVERITY_MASK) >= r.own(1);
    });
    return found;
  });
}
void ask_count(void* out, const void* const* in, int64_t n, const int64_t* numbers) {
  ask<int32_t>(out, in, n, numbers, [](const uint16_t* slots, const Records& r) {
    int32_t count = 0;
    each_entry(slots, r.width(), [&](uint16_t) { ++count; });
    return count;
  });
}
void ask_max_severity(void* out, const void* const* in, int64_t n, const int64_t* numbers) {
  ask<int64_t>(out, in, n, numbers, [](const uint16_t* slots, const Records& r) {
    int64_t worst = 0;
    each_entry(slots, r.width(), [&](uint16_t slot) { worst = std::max<int64_t>(worst, slot & SEVERITY_MASK); });
    return worst;
  });
}
void ask_first_code(void* out, const void* const* in, int64_t n, const int64_t* numbers) {
  ask<int32_t>(out, in, n, numbers,
               [](const uint16_t* slots, const Records&) { return (slots[0] & CODE_IN_SLOT) >> CODE_SHIFT; });
}
void ask_first_location(void* out, const void* const* in, int64_t n, const int64_t* numbers) {
  ask<int32_t>(out, in, n, numbers, [](const uint16_t* slots, const Records&) { return slots[0] >> LOCATION_SHIFT; });
}
void ask_first_severity(void* out, const void* const* in, int64_t n, const int64_t* numbers) {
  ask<int32_t>(out, in, n, numbers, [](const uint16_t* slots, const Records&) { return slots[0] & SEVERITY_MASK; });
}
void ask_slot(void* out, const void* const* in, int64_t n, const int64_t* numbers) {
  ask<int64_t>(out, in, n, numbers, [](const uint16_t* slots, const Records& r) { return slots[r.own(0)]; });
}

void has_nan(void* out, const void* const* in, int64_t n, const int64_t*) {
  for (int64_t i = 0; i < n; ++i) static_cast<uint8_t*>(out)[i] = static_cast<const NonFinite*>(in[0])[i].nan;
}
void has_inf(void* out, const void* const* in, int64_t n, const int64_t*) {
  for (int64_t i = 0; i < n; ++i) static_cast<uint8_t*>(out)[i] = static_cast<const NonFinite*>(in[0])[i].inf;
}

template <class T>
void copy(void* out, const void* const* in, int64_t n, const int64_t*) {
  std::memcpy(out, in[0], static_cast<size_t>(n) * sizeof(T));
}
template <class T>
void fill(void* out, const void* const* in, int64_t n, const int64_t*) {
  std::fill_n(static_cast<T*>(out), n, *static_cast<const T*>(in[0]));
}

}  // namespace

MapStep record_step(Opcode opcode) {
  switch (opcode) {
    case Opcode::record_push:
      return &push;
    case Opcode::record_merge:
      return &merge;
    case Opcode::record_clear:
      return &clear;
    case Opcode::record_is_err:
      return &ask_is_err;
    case Opcode::record_match:
      return &ask_match;
    case Opcode::record_count_errors:
      return &ask_count;
    case Opcode::record_max_severity:
      return &ask_max_severity;
    case Opcode::record_first_code:
      return &ask_first_code;
    case Opcode::record_first_location:
      return &ask_first_location;
    case Opcode::record_first_severity:
      return &ask_first_severity;
    case Opcode::record_slot:
      return &ask_slot;
    case Opcode::has_nan:
      return &has_nan;
    case Opcode::has_inf:
      return &has_inf;
    default:
      return nullptr;
  }
}

MapStep copy_step(int32_t size) {
  return size == 1 ? &copy<uint8_t> : size == 2 ? &copy<uint16_t> : size == 4 ? &copy<uint32_t> : &copy<uint64_t>;
}
MapStep fill_step(int32_t size) {
  return size == 1 ? &fill<uint8_t> : size == 2 ? &fill<uint16_t> : size == 4 ? &fill<uint32_t> : &fill<uint64_t>;
}

}  // namespace triage::fused
