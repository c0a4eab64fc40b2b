// Functions whose results have bounds, such as a sigmoid or a clamp: whether a result is in a range, or finite, is
// whether what it was computed from is no NaN. That is often known already.
#include "runtime/backends/fused/lowering/known_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/backends/fused/support/numbers.h"

namespace triage::fused {
namespace {

constexpr int most_steps = 6;  // that are looked back

/// A real number that stands in the graph, and is no NaN.
std::optional<double> real_literal(const LoopBuilder& l, Ref ref) {
  const LoopValue& value = l.value(ref);
  if (!value.is(Opcode::literal) || !is_real(value.type)) return std::nullopt;
  const double number = real_of_bits(value.type, value.numbers[0]);
  return std::isnan(number) ? std::nullopt : std::optional(number);
}

double rounded(const LoopValue& to, double bound) {
  const auto number = static_cast<float>(bound);
  if (to.opcode == Opcode::to_half) return as_half(number);
  if (to.opcode == Opcode::to_bfloat16) return as_bfloat16(number);
  return to.type == Type::f32 ? number : bound;
}

KnownBounds bounds_of(const LoopBuilder& l, Ref ref, int most) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const KnownBounds unknown{-inf, inf, ref};
  const LoopValue& value = l.value(ref);
  if (value.kind != LoopValue::Kind::map || !is_real(value.type) || most == 0) return unknown;
  const auto of_operand = [&] { return bounds_of(l, value.operands[0], most - 1); };
  switch (value.opcode) {
    case Opcode::sigmoid:
      return {0, 1, of_operand().nan_of};
    case Opcode::tanh:
      return {-1, 1, of_operand().nan_of};
    case Opcode::at_least:
    case Opcode::at_most: {
      const auto limit = real_literal(l, value.operands[1]);
      if (!limit) return unknown;
      KnownBounds known = of_operand();
      for (double* const bound : {&known.low, &known.high})
        *bound = value.opcode == Opcode::at_least ? std::max(*bound, *limit) : std::min(*bound, *limit);
      return known;
    }
    case Opcode::convert:
    case Opcode::to_half:
    case Opcode::to_bfloat16: {
      if (!is_real(l.value(value.operands[0]).type)) return unknown;
      const KnownBounds known = of_operand();
      return {rounded(value, known.low), rounded(value, known.high), known.nan_of};
    }
    default:
      return unknown;
  }
}

bool are_same(const LoopBuilder& l, Ref a, Ref b, int most) {
  if (a == b) return true;
  const LoopValue &one = l.value(a), &other = l.value(b);
  if (one.kind != LoopValue::Kind::map || !other.is(one.opcode) || one.type != other.type || !one.numbers.empty() ||
      one.operands.size() != other.operands.size() || most == 0)
    return false;
  for (size_t i = 0; i < one.operands.size(); ++i)
    if (!are_same(l, one.operands[i], other.operands[i], most - 1)) return false;
  return true;
}

std::optional<bool> known(const LoopBuilder& l, Ref ref, int most) {
  const LoopValue& condition = l.value(ref);
  if (condition.kind != LoopValue::Kind::map || condition.type != Type::boolean || most == 0) return std::nullopt;
  const auto of_operands = [&](auto&& act) -> std::optional<bool> {
    const auto a = known(l, condition.operands[0], most - 1), b = known(l, condition.operands[1], most - 1);
    return a && b ? std::optional<bool>(act(*a, *b)) : std::nullopt;
  };
  const auto of_numbers = [&](auto&& act) -> std::optional<bool> {
    const auto a = real_literal(l, condition.operands[0]), b = real_literal(l, condition.operands[1]);
    return a && b ? std::optional<bool>(act(*a, *b)) : std::nullopt;
  };
  switch (condition.opcode) {
    case Opcode::logical_not: {
      const auto inner = known(l, condition.operands[0], most - 1);
      return inner ? std::optional<bool>(!*inner) : std::nullopt;
    }
    case Opcode::bit_and:
      return of_operands([](bool a, bool b) { return a && b; });
    case Opcode::ge:
      return of_numbers([](double a, double b) { return a >= b; });
    case Opcode::le:
      return of_numbers([](double a, double b) { return a <= b; });
    case Opcode::is_nan:
      return real_literal(l, condition.operands[0]) ? std::optional(false) : std::nullopt;
    default:
      return std::nullopt;
  }
}

bool compare_one_value(const LoopBuilder& l, const LoopValue& both) {
  const LoopValue &one = l.value(both.operands[0]), &other = l.value(both.operands[1]);
  const auto is_bound = [](const LoopValue& value) { return value.is(Opcode::ge) || value.is(Opcode::le); };
  return is_bound(one) && is_bound(other) && one.operands[0] == other.operands[0];
}

Ref decided(LoopBuilder& l, Ref ref, int most) {
  const LoopValue condition = l.value(ref);
  if (condition.kind != LoopValue::Kind::map || condition.place != Place::element || most == 0) return ref;
  const auto operand = [&](size_t i) { return decided(l, condition.operands[i], most - 1); };
  switch (condition.opcode) {
    case Opcode::logical_not: {
      const Ref inner = operand(0);
      if (inner == condition.operands[0]) return ref;
      return l.value(inner).is(Opcode::logical_not) ? l.value(inner).operands[0] : l.step("!a", {inner});
    }
    case Opcode::bit_and: {
      if (condition.type != Type::boolean) return ref;
      const Ref a = operand(0), b = operand(1);
      const bool keeps_a = a == condition.operands[0], keeps_b = b == condition.operands[1];
      if (keeps_a && keeps_b) return ref;
      if (are_same(l, a, b, most_steps)) return a;
      if (keeps_a != keeps_b && compare_one_value(l, condition)) return keeps_a ? a : b;  // which no NaN meets either
      return l.step("a & b", {a, b});
    }
    case Opcode::ge:
    case Opcode::le: {
      const auto limit = real_literal(l, condition.operands[1]);
      if (!limit) return ref;
      const KnownBounds known = known_bounds(l, condition.operands[0]);
      const bool holds = condition.opcode == Opcode::ge ? known.low >= *limit : known.high <= *limit;
      return holds ? l.step("!is_nan(a)", {known.nan_of}) : ref;
    }
    default:
      return ref;
  }
}

}  // namespace

bool KnownBounds::are_finite() const { return std::isfinite(low) && std::isfinite(high); }

KnownBounds known_bounds(const LoopBuilder& loops, Ref value) { return bounds_of(loops, value, most_steps); }

std::optional<bool> known_condition(const LoopBuilder& loops, Ref condition) {
  return known(loops, condition, most_steps);
}

Ref decided_by_bounds(LoopBuilder& loops, Ref condition) { return decided(loops, condition, most_steps); }

}  // namespace triage::fused
