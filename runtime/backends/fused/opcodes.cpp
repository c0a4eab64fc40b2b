#include "runtime/backends/fused/opcodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/messages/assert.h"

namespace triage::fused {
namespace {

constexpr bool slow = true, cheap = false, exact = true, inexact = false;

struct TypeRow {
  const char* name;
  at::ScalarType dtype;
  int64_t lowest, highest;  // of whole numbers
};
template <class T>
constexpr TypeRow whole(const char* name, at::ScalarType dtype) {
  return {name, dtype, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
}
constexpr std::array<TypeRow, 11> types = {{
    {"bool", at::kBool, 0, 1},
    whole<uint8_t>("uint8_t", at::kByte),
    whole<int8_t>("int8_t", at::kChar),
    whole<int16_t>("int16_t", at::kShort),
    whole<int32_t>("int32_t", at::kInt),
    whole<uint32_t>("uint32_t", at::kInt),
    whole<int64_t>("int64_t", at::kLong),
    {"float", at::kFloat, 0, 0},
    {"double", at::kDouble, 0, 0},
    {"", at::kLong, 0, 0},
    {"NonFinite", at::kFloat, 0, 0},
}};
const TypeRow& row_of(Type type) { return types[static_cast<size_t>(type)]; }

template <class To, class From>
To bits_as(From from) {
  To to;
  static_assert(sizeof(to) == sizeof(from));
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

/// As few digits as make the same number again.
template <class T>
std::string real_code(T number, const char* suffix) {
  if (std::isnan(number)) return fmt::format("__builtin_nan{}(\"\")", suffix);
  std::string code = std::isinf(number) ? fmt::format("{}__builtin_inf{}()", number < 0 ? "-" : "", suffix)
                                        : fmt::format("{}", number);
  if (std::isfinite(number)) {
    if (code.find_first_of(".e") == std::string::npos) code += ".0";
    code += suffix;
  }
  return code[0] == '-' ? "(" + code + ")" : code;
}

}  // namespace

const std::vector<OpcodeRow>& opcode_rows() {
  static const auto& rows = *new std::vector<OpcodeRow>{
#define LEAF(name, signature, numbers, code) {#name, signature, numbers, cheap, inexact, code},
#define OPCODE(name, signature, cost, exactness, ...) {#name, signature, 0, cost, exactness, #__VA_ARGS__},
#define RECORD(name, signature, numbers, ...) {#name, signature, numbers, cheap, inexact, #__VA_ARGS__},
#include "runtime/backends/fused/opcodes.inc"
#undef LEAF
#undef OPCODE
#undef RECORD
  };
  return rows;
}

const OpcodeRow& row_of(Opcode opcode) { return opcode_rows()[static_cast<size_t>(opcode)]; }

std::optional<Opcode> find_opcode(std::string_view name) {
  const auto& rows = opcode_rows();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const OpcodeRow& row) { return row.name == name; });
  return found == rows.end() ? std::nullopt : std::optional(static_cast<Opcode>(found - rows.begin()));
}

std::optional<Type> result_type(Opcode opcode, const std::vector<Type>& operands, std::optional<Type> asked) {
  const OpcodeRow& row = row_of(opcode);
  const char result = row.signature.back();
  if (operands.size() != row.arity() || asked.has_value() != (result == '?')) return std::nullopt;
  std::optional<Type> type = asked;
  for (size_t i = 0; i < operands.size(); ++i) {
    const size_t first = row.signature.find(row.signature[i]);
    if (!allows(row.signature[i], operands[i]) || operands[i] != operands[first]) return std::nullopt;
    if (row.signature[i] == result) type = operands[i];
  }
  for (const auto& [letter, fixed] :
       {std::pair('b', Type::boolean), {'i', Type::i32}, {'l', Type::i64}, {'R', Type::record}})
    if (result == letter) type = fixed;
  return type;
}

const char* name_of(Type type) { return row_of(type).name; }
at::ScalarType dtype_of(Type type) { return row_of(type).dtype; }

std::optional<Type> computed_type(at::ScalarType dtype) {
  if (dtype == at::kHalf || dtype == at::kBFloat16) return Type::f32;
  for (const Type type : {Type::boolean, Type::u8, Type::i8, Type::i16, Type::i32, Type::i64, Type::f32, Type::f64})
    if (dtype_of(type) == dtype) return type;
  return std::nullopt;
}

int64_t bits_of_real(Type type, double number) {
  TRIAGE_ASSERT(is_real(type));
  if (std::isnan(number)) number = std::numeric_limits<double>::quiet_NaN();
  if (type == Type::f64) return bits_as<int64_t>(number);
  return bits_as<uint32_t>(static_cast<float>(number));
}

double real_of_bits(Type type, int64_t bits) {
  TRIAGE_ASSERT(is_real(type));
  return type == Type::f64 ? bits_as<double>(bits) : bits_as<float>(static_cast<uint32_t>(bits));
}

int64_t whole_bits(Type type, int64_t number) {
  switch (type) {
    case Type::boolean:
      return number != 0;
    case Type::u8:
      return static_cast<uint8_t>(number);
    case Type::i8:
      return static_cast<int8_t>(number);
    case Type::i16:
      return static_cast<int16_t>(number);
    case Type::i32:
      return static_cast<int32_t>(number);
    case Type::u32:
      return static_cast<uint32_t>(number);
    default:
      return number;
  }
}

std::string literal_code(Type type, int64_t bits) {
  if (type == Type::f32) return real_code(static_cast<float>(real_of_bits(type, bits)), "f");
  if (type == Type::f64) return real_code(real_of_bits(type, bits), "");
  if (type == Type::boolean) return bits ? "true" : "false";
  TRIAGE_ASSERT(is_whole(type) && bits >= row_of(type).lowest && bits <= row_of(type).highest);
  if (type == Type::i64) return bits == row_of(type).lowest ? "INT64_MIN" : fmt::format("INT64_C({})", bits);
  if (type == Type::i32 && bits >= 0) return fmt::format("{}", bits);
  return fmt::format("{}{{{}}}", name_of(type), bits);  // -2147483648 alone is no int32_t
}

int64_t start_of(Join join, Type type) {
  const bool largest = join == Join::largest;
  const double infinity = std::numeric_limits<double>::infinity();
  switch (join) {
    case Join::product:
      return is_real(type) ? bits_of_real(type, 1) : 1;
    case Join::largest:
    case Join::smallest:
      if (is_real(type)) return bits_of_real(type, largest ? -infinity : infinity);
      return largest ? row_of(type).lowest : row_of(type).highest;
    default:
      return 0;
  }
}

}  // namespace triage::fused
