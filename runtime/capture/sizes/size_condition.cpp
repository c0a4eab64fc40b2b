#include "runtime/capture/sizes/size_condition.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/graph/evaluation/number_ops.h"

namespace triage::capture {

using operators::sign;

namespace {

/// A whole number that stands in the call; 0 where there is none.
int64_t plain_number(const graph::Operand& operand) {
  const c10::IValue* number = operand.constant();
  return number && number->isInt() ? number->toInt() : 0;
}

}  // namespace

std::optional<SizeCondition> SizeCondition::of(const graph::Value* condition, bool truth, const OriginOf& origin) {
  SizeCondition result;
  result.truth_ = truth;
  if (!condition->producer || !result.add(condition, origin, 0, 0) || !compares(result.steps_.back().op))
    return std::nullopt;
  return result;
}

std::optional<SizeCondition::Op> SizeCondition::op_of(const graph::Node& node) {
  const Op op = graph::arithmetic_of(node);
  if (op == Op::none || op == Op::divide) return std::nullopt;
  const bool divides = op == Op::floor_divide || op == Op::remainder;
  if (divides && plain_number(node.operands[1]) <= 0) return std::nullopt;
  return op;
}

bool SizeCondition::add(const graph::Operand& operand, const OriginOf& origin, size_t depth, size_t behind) {
  if (const graph::Value* value = operand.value()) return add(value, origin, depth, behind);
  const c10::IValue* number = operand.constant();
  if (!number || !number->isInt() || depth >= kDepth) return false;
  steps_.push_back({ConditionStep::Kind::constant, Op::none, number->toInt()});
  return true;
}

bool SizeCondition::add(const graph::Value* value, const OriginOf& origin, size_t depth, size_t behind) {
  if (depth >= kDepth || steps_.size() + behind >= kMostSteps) return false;
  const SizeOrigin from = origin(value);
  if (from.size || from.constant) {
    if (from.size)
      steps_.push_back({ConditionStep::Kind::size, Op::none, from.size->dim, from.size->input});
    else
      steps_.push_back({ConditionStep::Kind::constant, Op::none, *from.constant});
    return true;
  }
  const graph::Node* node = value->producer;
  const std::optional<Op> op = node ? op_of(*node) : std::nullopt;
  if (!op || (value->meta && value->meta->dtype != at::kLong && !compares(*op))) return false;
  if (*op == Op::negate) {
    if (!add(node->operands[0], origin, depth, behind + 1)) return false;
  } else {
    const bool swapped = *op == Op::subtract_from;
    if (!add(node->operands[swapped ? 1 : 0], origin, depth, behind + 2) ||
        !add(node->operands[swapped ? 0 : 1], origin, depth + 1, behind + 1))
      return false;
  }
  steps_.push_back({ConditionStep::Kind::compute, *op == Op::subtract_from ? Op::subtract : *op});
  return true;
}

/// As ATen computes it: int64 that wraps around, quotients rounded down. Divisors are positive (`add`).
int64_t SizeCondition::apply(Op op, int64_t a, int64_t b) noexcept {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
    case Op::add:
      return static_cast<int64_t>(ua + ub);
    case Op::subtract:
      return static_cast<int64_t>(ua - ub);
    case Op::multiply:
      return static_cast<int64_t>(ua * ub);
    case Op::floor_divide:
      return a / b - (a % b < 0);
    case Op::remainder:
      return a % b + (a % b < 0 ? b : 0);
    case Op::bit_and:
      return a & b;
    case Op::bit_or:
      return a | b;
    case Op::bit_xor:
      return a ^ b;
    case Op::largest:
      return std::max(a, b);
    case Op::smallest:
      return std::min(a, b);
    case Op::less:
      return a < b;
    case Op::less_equal:
      return a <= b;
    case Op::greater:
      return a > b;
    case Op::greater_equal:
      return a >= b;
    case Op::equal:
      return a == b;
    default:
      return a != b;
  }
}

bool SizeCondition::holds(at::ArrayRef<at::Tensor> inputs) const noexcept {
  std::array<int64_t, kDepth + 1> stack{};
  size_t top = 0;
  for (const ConditionStep& step : steps_) {
    if (step.kind == ConditionStep::Kind::size) {
      stack[top++] = inputs[step.input].unsafeGetTensorImpl()->size(step.number);
    } else if (step.kind == ConditionStep::Kind::constant) {
      stack[top++] = step.number;
    } else if (step.op == Op::negate) {
      stack[top - 1] = static_cast<int64_t>(-static_cast<uint64_t>(stack[top - 1]));
    } else {
      --top;
      stack[top - 1] = apply(step.op, stack[top - 1], stack[top]);
    }
  }
  return (stack[0] != 0) == truth_;
}

std::string SizeCondition::text(const std::function<std::string(size_t)>& input_name) const {
  struct TermText {
    std::string text;
    bool simple;
  };
  const auto operand = [](const TermText& part) { return part.simple ? part.text : "(" + part.text + ")"; };
  std::vector<TermText> stack;
  for (const ConditionStep& step : steps_) {
    if (step.kind == ConditionStep::Kind::size) {
      stack.push_back({fmt::format("{}:size({})", input_name(step.input), step.number), true});
    } else if (step.kind == ConditionStep::Kind::constant) {
      stack.push_back({std::to_string(step.number), true});
    } else if (step.op == Op::negate) {
      stack.back() = {"-" + operand(stack.back()), false};
    } else if (step.op == Op::largest || step.op == Op::smallest) {
      const TermText right = std::move(stack.back());
      stack.pop_back();
      stack.back() = {fmt::format("{}({}, {})", sign(step.op), stack.back().text, right.text), true};
    } else {
      const TermText right = std::move(stack.back());
      stack.pop_back();
      const bool compared = compares(step.op);
      stack.back() = {fmt::format("{} {} {}", compared ? stack.back().text : operand(stack.back()), sign(step.op),
                                  compared ? right.text : operand(right)),
                      false};
    }
  }
  return stack.back().text;
}

std::optional<SizeCondition::Equality> SizeCondition::equality() const {
  if (steps_.size() != 3 || steps_[2].op != (truth_ ? Op::equal : Op::not_equal)) return std::nullopt;
  const auto size = [&](size_t i) {
    return steps_[i].kind == ConditionStep::Kind::size ? std::optional(InputDim{steps_[i].input, steps_[i].number})
                                                       : std::nullopt;
  };
  const auto left = size(0), right = size(1);
  if (!left && !right) return std::nullopt;
  return left ? Equality{*left, right} : Equality{*right, std::nullopt};
}

}  // namespace triage::capture
