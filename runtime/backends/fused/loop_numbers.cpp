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

/// Of a value on the host, whose operands are there too.
c10::Scalar computed(const LoopValue& value, const std::vector<c10::Scalar>& known) {
  const bool moves = value.is(Opcode::convert) || value.is(Opcode::copy);
  const auto& a = known[static_cast<size_t>(value.operands[0])];
  const auto& b = known[static_cast<size_t>(value.operands.back())];
  if (value.type == Type::f64) return moves ? a.toDouble() : of_real(value.opcode, a.toDouble(), b.toDouble()).value();
  return moves ? a.toLong() : of_whole(value.opcode, a.toLong(), b.toLong()).value();
}

c10::Scalar literal(const LoopValue& value) {
  return is_real(value.type) ? c10::Scalar(real_of_bits(value.type, value.numbers[0])) : c10::Scalar(value.numbers[0]);
}

}  // namespace

bool can_be_on_host(const std::vector<LoopValue>& values, const LoopValue& value) {
  if (value.place != Place::number) return false;
  if (value.kind == LoopValue::Kind::input) return true;
  if (value.kind != LoopValue::Kind::map) return false;
  if (value.is(Opcode::literal) || value.is(Opcode::count)) return true;
  if (value.operands.empty() || value.operands.size() > 2) return false;
  const bool real = value.type == Type::f64, moves = value.is(Opcode::convert) || value.is(Opcode::copy);
  for (const Ref operand : value.operands) {
    const LoopValue& from = values[static_cast<size_t>(operand)];
    if (!from.on_host || (!real && is_real(from.type))) return false;
  }
  if (!real && value.type != Type::i64) return false;
  return moves || (real ? of_real(value.opcode, 1, 1).has_value() : of_whole(value.opcode, 1, 1).has_value());
}

void find_numbers(const Loops& loops, InputNumber input, c10::function_ref<int64_t(size_t)> count,
                  std::vector<c10::Scalar>& known) {
  const auto end = static_cast<size_t>(loops.last_asked + 1);
  if (known.size() < end) known.resize(end);
  c10::SmallVector<c10::Scalar, 4> operands;
  for (size_t i = 0; i < end; ++i) {
    const LoopValue& value = loops.values[i];
    if (!value.on_host) continue;
    operands.clear();
    if (value.kind == LoopValue::Kind::input)
      for (const Ref operand : value.operands) operands.push_back(known[static_cast<size_t>(operand)]);
    known[i] = value.kind == LoopValue::Kind::input ? input(static_cast<size_t>(value.slot), operands)
               : value.is(Opcode::literal)          ? literal(value)
               : value.is(Opcode::count)            ? c10::Scalar(count(static_cast<size_t>(value.numbers[0])))
                                                    : computed(value, known);
  }
}

Ref last_asked(const Loops& loops) {
  Ref last = -1;
  for (const NumberBound& bound : loops.bounds) last = std::max(last, bound.value);
  for (const SizeCheck& check : loops.size_checks) last = std::max(last, check.number);
  for (size_t i = 0; i < loops.values.size(); ++i)
    if (const LoopValue& value = loops.values[i];
        value.kind == LoopValue::Kind::input && loops.inputs[static_cast<size_t>(value.slot)].computed)
      last = std::max(last, static_cast<Ref>(i));
  return last;
}

}  // namespace triage::fused
