#include "runtime/backends/fused/loop_numbers.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cmath>

namespace triage::fused {
namespace {

/// Whole numbers wrap around.
std::optional<int64_t> of_whole(Opcode opcode, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  switch (opcode) {
    case Opcode::add:
      return static_cast<int64_t>(x + y);
    case Opcode::sub:
      return static_cast<int64_t>(x - y);
    case Opcode::mul:
      return static_cast<int64_t>(x * y);
    case Opcode::neg:
      return static_cast<int64_t>(0 - x);
    case Opcode::maximum:
      return std::max(a, b);
    case Opcode::minimum:
      return std::min(a, b);
    default:
      return std::nullopt;
  }
}

std::optional<double> of_real(Opcode opcode, double a, double b) {
  switch (opcode) {
    case Opcode::add:
      return a + b;
    case Opcode::sub:
      return a - b;
    case Opcode::mul:
      return a * b;
    case Opcode::div:
      return a / b;
    case Opcode::neg:
      return -a;
    case Opcode::reciprocal:
      return 1 / a;
    case Opcode::sqrt:
      return std::sqrt(a);
    case Opcode::maximum:
      return std::isnan(a) || a > b ? a : b;
    case Opcode::minimum:
      return std::isnan(a) || a < b ? a : b;
    default:
      return std::nullopt;
  }
}

template <class Number>
std::optional<c10::Scalar> as_scalar(const std::optional<Number>& number) {
  return number ? std::optional<c10::Scalar>(*number) : std::nullopt;
}

}  // namespace

std::optional<c10::Scalar> number_of(const std::vector<LoopValue>& values, Ref number,
                                     c10::function_ref<c10::Scalar(size_t)> input,
                                     c10::function_ref<int64_t(size_t)> count) {
  const LoopValue& value = values[static_cast<size_t>(number)];
  if (value.place != Place::number) return std::nullopt;
  if (value.kind == LoopValue::Kind::input) return input(static_cast<size_t>(value.slot));
  if (value.kind != LoopValue::Kind::map) return std::nullopt;
  if (value.is(Opcode::literal)) {
    if (is_real(value.type)) return c10::Scalar(real_of_bits(value.type, value.numbers[0]));
    return c10::Scalar(value.numbers[0]);
  }
  if (value.is(Opcode::count)) return c10::Scalar(count(static_cast<size_t>(value.numbers[0])));
  c10::SmallVector<c10::Scalar, 2> operands;
  for (const Ref operand : value.operands) {
    const auto known = number_of(values, operand, input, count);
    if (!known || operands.size() == 2) return std::nullopt;
    operands.push_back(*known);
  }
  if (operands.empty()) return std::nullopt;
  const c10::Scalar &a = operands.front(), &b = operands.back();
  const bool moves = value.is(Opcode::convert) || value.is(Opcode::copy);
  if (value.type == Type::f64)
    return as_scalar(moves ? a.toDouble() : of_real(value.opcode, a.toDouble(), b.toDouble()));
  if (value.type == Type::i64 && a.isIntegral(true) && b.isIntegral(true))
    return as_scalar(moves ? a.toLong() : of_whole(value.opcode, a.toLong(), b.toLong()));
  return std::nullopt;
}

}  // namespace triage::fused
