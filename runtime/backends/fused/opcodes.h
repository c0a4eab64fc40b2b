#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The operations of loops (opcodes.inc), the types that they compute in, and numbers of these types.
namespace triage::fused {

/// What a value is while it is computed. How a tensor holds it is its dtype: float16 and bfloat16 are computed as f32.
enum class Type : uint8_t { boolean, u8, i8, i16, i32, u32, i64, f32, f64, record, non_finite };

enum class Opcode : uint8_t {
#define LEAF(name, ...) name,
#define OPCODE(name, ...) name,
#define RECORD(name, ...) name,
#include "runtime/backends/fused/opcodes.inc"
#undef LEAF
#undef OPCODE
#undef RECORD
};

struct OpcodeRow {
  const char* name;
  std::string_view signature;
  size_t numbers;
  bool slow, exact;
  const char* code;
  size_t arity() const { return signature.find(':'); }
  bool is_leaf() const { return arity() == 0; }
};
const OpcodeRow& row_of(Opcode opcode);
const std::vector<OpcodeRow>& opcode_rows();  // in the order of Opcode
std::optional<Opcode> find_opcode(std::string_view name);

/// --- types ---
constexpr bool is_real(Type type) { return type == Type::f32 || type == Type::f64; }
constexpr bool is_whole(Type type) { return type >= Type::u8 && type <= Type::i64; }

/// Whether an operand that a signature gives this letter may have the type.
constexpr bool allows(char letter, Type type) {
  switch (letter) {
    case 'A':
      return type != Type::non_finite;
    case 'B':
      return is_real(type) || is_whole(type) || type == Type::boolean;
    case 'T':
      return is_real(type) || is_whole(type);
    case 'D':
      return is_real(type) || type == Type::i32 || type == Type::i64;
    case 'W':
      return is_whole(type) || type == Type::boolean;
    case 'F':
      return is_real(type);
    case 'S':
      return type == Type::f32;
    case 'b':
      return type == Type::boolean;
    case 'i':
      return type == Type::i32;
    case 'l':
      return type == Type::i64;
    case 'R':
      return type == Type::record;
    case 'N':
      return type == Type::non_finite;
    default:
      return false;
  }
}

/// The type of the result; nothing where the opcode does not take these operands. `asked`: where the signature has '?'.
std::optional<Type> result_type(Opcode opcode, const std::vector<Type>& operands, std::optional<Type> asked = {});

/// How a reduction makes one value of two.
enum class Join : uint8_t { sum, product, largest, smallest, any };

/// --- names of types, and dtypes ---
const char* name_of(Type type);                           // in C++; empty for records, whose size it lacks
std::optional<Type> computed_type(at::ScalarType dtype);  // none for dtypes that loops do not compute in
at::ScalarType dtype_of(Type type);                       // that holds what was computed

/// --- numbers: their bits, the upper ones zero for f32, repeating the sign for whole numbers ---
int64_t bits_of_real(Type type, double number);  // every NaN is one
double real_of_bits(Type type, int64_t bits);
int64_t whole_bits(Type type, int64_t number);      // its last bits
std::string literal_code(Type type, int64_t bits);  // as C++
int64_t start_of(Join join, Type type);             // what a reduction begins with: joined to a number it leaves that

}  // namespace triage::fused
