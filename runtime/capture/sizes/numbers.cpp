#include "runtime/capture/sizes/numbers.h"

#include <ATen/core/stack.h>
#include <fmt/format.h>

#include "runtime/capture/recording/recorder.h"
#include "runtime/graph/evaluation/number_ops.h"

namespace triage::capture {
namespace {

torch::jit::Stack run(std::string_view op, torch::jit::Stack arguments) {
  call_plainly(graph::number_op(op), arguments);
  return arguments;
}

/// Null where nothing is recorded: any operator that numbers are made by may have been a graph break.
const graph::Value* find(const at::Tensor& number) {
  const Recorder* recorder = Recorder::current();
  return recorder ? recorder->tensors().find(number) : nullptr;
}

/// Of a value that was found.
CapturedNumbers& numbers() { return Recorder::current()->sizes().numbers; }

const symbols::SymbolicExpression* expression_of(const at::Tensor& number) {
  const graph::Value* value = find(number);
  return value ? numbers().table.find(value) : nullptr;
}

/// "u0 lies in VR[0, int_oo]", for each symbol of the expression.
std::string what_is_known(const symbols::SymbolTable& table, const symbols::SymbolicExpression& expression) {
  std::string text;
  const auto add = [&](const symbols::SymbolicExpression& side) {
    if (side.scale == 0) return;
    const symbols::Symbol& symbol = table.symbols()[side.symbol];
    const std::string line = fmt::format("{} lies in {}", symbol.name, symbols::text(symbol.range, symbol.whole));
    if (text.find(line) == std::string::npos) text += (text.empty() ? "" : ", ") + line;
  };
  if (expression.kind == symbols::SymbolicExpression::Kind::truth)
    for (const symbols::SymbolicExpression& side : expression.sides) add(side);
  else
    add(expression);
  return text;
}

}  // namespace

const CapturedNumbers::TensorSize* CapturedNumbers::find_size(const graph::Value* number) const {
  const auto found = sizes_.find(number);
  return found == sizes_.end() ? nullptr : &found->second;
}

/// Scripts compute numbers in loops, of one another: a walk must not recurse, and must not begin anew for each number.
bool CapturedNumbers::is_of_sizes(const graph::Value* asked) const {
  std::vector<const graph::Value*> left{asked};
  while (!left.empty()) {
    const graph::Value* const number = left.back();
    const auto known = of_sizes_.find(number);
    if (known != of_sizes_.end()) {
      left.pop_back();
      continue;
    }
    const bool is_size = find_size(number) || is_literal_(number);
    if (is_size || !number->producer || number->producer->op.operator_name().name == graph::kItem) {
      of_sizes_[number] = is_size;
      continue;
    }
    bool all = true, waits = false;
    for (const graph::Operand& operand : number->producer->operands) {
      const graph::Value* const value = operand.value();
      if (!value) continue;
      const auto of = of_sizes_.find(value);
      if (of == of_sizes_.end()) {
        left.push_back(value);
        waits = true;
      } else {
        all &= of->second;
      }
    }
    if (!waits) of_sizes_[number] = all;
  }
  return of_sizes_.at(asked);
}

std::optional<std::vector<CapturedNumbers::TensorSize>> CapturedNumbers::sizes_behind(
    const graph::Value* number) const {
  if (!is_of_sizes(number)) return std::nullopt;
  std::vector<TensorSize> sizes;
  std::unordered_set<const graph::Value*> seen;
  std::vector<const graph::Value*> left{number};
  while (!left.empty()) {
    const graph::Value* const value = left.back();
    left.pop_back();
    if (!seen.insert(value).second) continue;
    if (const TensorSize* size = find_size(value)) {
      sizes.push_back(*size);
    } else if (value->producer) {
      for (const graph::Operand& operand : value->producer->operands)
        if (operand.value()) left.push_back(operand.value());
    }
  }
  return sizes;
}

at::Tensor record_item(const at::Tensor& tensor) { return run(graph::kItem, {tensor}).at(0).toTensor(); }

std::optional<at::Tensor> record_size(const at::Tensor& tensor, int64_t dim) {
  if (Recorder::current()->sizes().has_fixed_size(tensor, dim)) return std::nullopt;
  at::Tensor size = run(graph::kSize, {tensor, dim}).at(0).toTensor();
  if (const graph::Value* value = find(size)) numbers().add_size(value, tensor, dim);
  return size;
}

bool is_captured_number(const at::Tensor& number) { return find(number) != nullptr; }

std::optional<bool> known_truth(const at::Tensor& condition) {
  const graph::Value* value = find(condition);
  return value ? numbers().table.decide(value) : std::nullopt;
}

std::string number_text(const at::Tensor& number) {
  const symbols::SymbolicExpression* expression = expression_of(number);
  return expression ? expression->text : "";
}

std::string what_is_known(const at::Tensor& number) {
  const symbols::SymbolicExpression* expression = expression_of(number);
  return expression ? what_is_known(numbers().table, *expression) : "";
}

symbols::Range range_of(const at::Tensor& number) {
  const symbols::SymbolicExpression* expression = expression_of(number);
  return expression ? numbers().table.range(*expression) : symbols::Range{};
}

bool follows_from_sizes(const at::Tensor& number) {
  const graph::Value* value = find(number);
  return value && numbers().is_of_sizes(value);
}

void record_check(const at::Tensor& condition, const std::string& expression, const std::string& message) {
  const graph::Value* value = find(condition);
  std::string text = "Runtime assertion failed";
  if (!expression.empty()) text += " for expression " + expression;
  text += fmt::format(" on node '{}'", value ? value->id : 0);
  if (!message.empty()) text += ": " + message;
  run(graph::kAssert, {condition, text});
}

void specialize(const at::Tensor& number) {
  Recorder* current = Recorder::current();
  const graph::Value* value = current ? current->tensors().find(number) : nullptr;
  if (!value || (number.scalar_type() == at::kBool && known_truth(number))) return;
  const bool is_condition = number.scalar_type() == at::kBool;
  if (is_condition && current->sizes().hold_condition(value, number.item().toBool())) return;
  if (const auto sizes = current->sizes().numbers.sizes_behind(value)) {
    for (const CapturedNumbers::TensorSize& size : *sizes) current->sizes().read_size(size.tensor, size.dim);
    return;
  }
  const symbols::SymbolTable& table = current->sizes().numbers.table;
  const symbols::SymbolicExpression* expression = table.find(value);
  const std::string words = expression ? "`" + expression->text + "`" : "a number read from a tensor";
  const std::string known = expression ? what_is_known(table, *expression) : "";
  if (is_condition)
    graph_break(
        Break::reads_value,
        fmt::format("the condition {} depends on data{}", words, known.empty() ? "" : " (" + known + ")"),
        "Constrain the number first, with triage.check(n <= 5), triage.check_is_size(n) or "
        "triage.constrain_as_value(n, {min = 0, max = 5}); or use IF or torch.where, which keep both branches.");
  else
    graph_break(Break::reads_value,
                fmt::format("the script depends on {}, a number read from a tensor{}", words,
                            known.empty() ? "" : " (" + known + ")"),
                "Pass it to operations only, constrain it with triage.check, or make it a constant with "
                "triage.assume_constant_result.");
}

}  // namespace triage::capture
