#include "runtime/backends/fused/tape/record_steps.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "runtime/backends/fused/support/records.h"

namespace triage::fused {
namespace {

template <Opcode opcode>
struct Code;
#define LEAF(...)
#define OPCODE(...)
#define RECORD(name, letters, count, ...)                                                                         \
  template <>                                                                                                     \
  struct Code<Opcode::name> {                                                                                     \
    static constexpr std::string_view signature = letters;                                                        \
    template <class A, class B>                                                                                   \
    static auto of(const A& a, [[maybe_unused]] const B& b, [[maybe_unused]] int64_t c, const int64_t* numbers) { \
      [[maybe_unused]] const int64_t n0 = numbers[0], n1 = numbers[1], n2 = numbers[2], n3 = numbers[3];          \
      return __VA_ARGS__;                                                                                         \
    }                                                                                                             \
  };
#include "runtime/backends/fused/opcodes.inc"
#undef RECORD

/// The numbers of a step: those of RecordStep, then so many of the value.
enum : size_t { kWidth, kCode, kSingleCondition, kSingleCode, kOwn };
constexpr size_t kMostNumbers = 4;

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

/// Calls `act` for each row whose condition holds: mostly none does.
template <class Act>
void each_row_where(const void* conditions, bool single, int64_t n, const Act& act) {
  const auto* const first = static_cast<const uint8_t*>(conditions);
  if (single) {
    for (int64_t i = 0; *first && i < n; ++i) act(i);
    return;
  }
  const auto next_from = [&](int64_t i) {
    return static_cast<const uint8_t*>(std::memchr(first + i, 1, static_cast<size_t>(n - i)));
  };
  for (const uint8_t* next = next_from(0); next; next = next_from(next - first + 1)) act(next - first);
}

template <char letter>
using Value = std::conditional_t<letter == 'b', uint8_t, std::conditional_t<letter == 'i', int32_t, int64_t>>;

/// `width`: 0: told by the numbers.
template <Opcode opcode, int64_t width>
void step(void* out, const void* const* in, int64_t n, const int64_t* numbers) {
  constexpr std::string_view signature = Code<opcode>::signature;
  constexpr size_t arity = signature.find(':');
  const int64_t slots = width > 0 ? width : numbers[kWidth];
  const int64_t* const own = numbers + kOwn;
  if constexpr (signature[0] == 'N') {
    for (int64_t i = 0; i < n; ++i)
      static_cast<uint8_t*>(out)[i] = Code<opcode>::of(static_cast<const NonFinite*>(in[0])[i], 0, 0, own);
  } else if constexpr (signature.back() != 'R') {
    using Result = Value<signature.back()>;
    for (int64_t i = 0; i < n; ++i) {
      const RecordInPlace<const uint16_t, width> a(static_cast<const uint16_t*>(in[0]) + i * slots, slots);
      static_cast<Result*>(out)[i] = static_cast<Result>(Code<opcode>::of(a, 0, 0, own));
    }
  } else {  // copied first, changed then
    std::memcpy(out, in[0], static_cast<size_t>(n * slots) * sizeof(uint16_t));
    const auto record = [&](int64_t i) {
      return RecordInPlace<uint16_t, width>(static_cast<uint16_t*>(out) + i * slots, slots);
    };
    if constexpr (arity == 3) {
      each_row_where(in[1], numbers[kSingleCondition] != 0, n, [&](int64_t i) {
        const int64_t code = whole_at(in[2], static_cast<Type>(numbers[kCode]), numbers[kSingleCode] ? 0 : i);
        Code<opcode>::of(record(i), true, code, own);
      });
    } else if constexpr (arity == 2) {
      for (int64_t i = 0; i < n; ++i) {
        const RecordInPlace<const uint16_t, width> b(static_cast<const uint16_t*>(in[1]) + i * slots, slots);
        Code<opcode>::of(record(i), b, 0, own);
      }
    } else {
      for (int64_t i = 0; i < n; ++i) Code<opcode>::of(record(i), 0, 0, own);
    }
  }
}

void select(void* out, const void* const* in, int64_t n, const int64_t* numbers) {
  const auto size = static_cast<size_t>(numbers[kWidth]) * sizeof(uint16_t);
  for (int64_t i = 0; i < n; ++i) {
    const bool where = static_cast<const uint8_t*>(in[0])[numbers[kSingleCondition] ? 0 : i];
    std::memcpy(static_cast<char*>(out) + static_cast<size_t>(i) * size,
                static_cast<const char*>(in[where ? 1 : 2]) + static_cast<size_t>(i) * size, size);
  }
}

template <class T>
void copy(void* out, const void* const* in, int64_t n, const int64_t*) {
  if (out != in[0]) std::memcpy(out, in[0], static_cast<size_t>(n) * sizeof(T));
}

}  // namespace

std::vector<int64_t> RecordStep::as_numbers() const {
  std::vector<int64_t> all{width, static_cast<int64_t>(code), single_condition, single_code};
  all.insert(all.end(), numbers.begin(), numbers.end());
  all.resize(kOwn + kMostNumbers);
  return all;
}

/// Records of the usual number of slots have steps of their own.
MapStep record_step(Opcode opcode, int64_t width) {
  switch (opcode) {
#define RECORD(name, ...) \
  case Opcode::name:      \
    return width == 16 ? &step<Opcode::name, 16> : &step<Opcode::name, 0>;
#include "runtime/backends/fused/opcodes.inc"
#undef RECORD
    case Opcode::select:
      return &select;
    default:
      return nullptr;
  }
}

MapStep copy_step(int32_t size) {
  return size == 1 ? &copy<uint8_t> : size == 2 ? &copy<uint16_t> : size == 4 ? &copy<uint32_t> : &copy<uint64_t>;
}

}  // namespace triage::fused
