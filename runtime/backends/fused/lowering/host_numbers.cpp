// Numbers that the host finds before the loops run: sizes, and what scripts compute of sizes, params and numbers.
// Tensors that are made of numbers and sizes alone.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "runtime/backends/fused/lowering/lowering.h"
#include "runtime/graph/copy.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/evaluation/number_math.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/graph/text/describe.h"

namespace triage::fused {
namespace {

using graph::Node;
using graph::Value;
using Kind = TensorForm::Kind;
using Number = std::optional<c10::Scalar>;
using Numbers = at::ArrayRef<c10::Scalar>;

bool is_host_number(const Value* value) {
  return value->meta && value->meta->sizes.empty() && value->meta->device.is_cpu();
}

/// triage::size
bool size(Lowering& l) {
  const auto x = l.lowered(0);
  const auto dim = l.integer(1);
  if (!x || !dim || x->form.kind == Kind::number) return false;
  const int64_t at = (*dim < 0 ? *dim + x->form.rank : *dim) - 1;
  if (at == -1) return l.note_batch_size();
  if (at < 0 || at >= x->form.rank - 1 || x->form.kind == Kind::record) return false;
  TensorForm form;
  form.dtype = at::kLong;
  const auto& trailing = x->form.trailing;
  if (x->form.kind == Kind::row || trailing[static_cast<size_t>(at)] == 1)  // such a size is 1 in every call
    return l.result(0, form, l.literal(Type::i64, 1));
  const auto before = std::count_if(trailing.begin(), trailing.begin() + at, [](int64_t size) { return size != 1; });
  return l.result(0, form, l.size_number(x->form.extent, static_cast<int32_t>(before)));
}

// --- calls on numbers ------------------------------------------------------------------------------------------------

HostNumber::Function math_function(const Node& node, const graph::MathFunction& function) {
  const auto* second = function.binary ? node.operands[2].constant() : nullptr;
  if (function.binary && !second && !node.operands[2].value()) return nullptr;
  const double fixed = second ? second->toScalar().toDouble() : 0;
  return [function, second = second != nullptr, fixed](Numbers numbers) -> Number {
    const double x = numbers.front().toDouble();
    const double made =
        function.unary ? function.unary(x) : function.binary(x, second ? fixed : numbers.back().toDouble());
    constexpr double beyond = 9223372036854775808.0;  // 2^63
    if (!function.whole) return made;
    if (!(made >= -beyond && made < beyond)) return std::nullopt;
    return static_cast<int64_t>(made);
  };
}

/// Whole numbers divided by a constant that every number can be divided by; null for other calls.
HostNumber::Function quotient(const Node& node, const std::string& op) {
  const bool divides = op == "aten::floor_divide.Scalar";
  const auto* by = node.operands.size() > 1 ? node.operands[1].constant() : nullptr;
  if ((!divides && op != "aten::remainder.Scalar") || !by || !by->isInt() || by->toInt() == 0 || by->toInt() == -1 ||
      node.operands[0].value()->meta->dtype != at::kLong)
    return nullptr;
  return [divides, b = by->toInt()](Numbers numbers) -> Number {
    const int64_t a = numbers.front().toLong(), left = a % b;
    const bool below = left != 0 && (left < 0) != (b < 0);
    return divides ? a / b - below : left + (below ? b : 0);
  };
}

/// What takes no tensors to compute; null where that is not known.
HostNumber::Function quick_function(const Node& node) {
  if (const graph::MathFunction* function = graph::math_of(node)) return math_function(node, *function);
  const std::string op = graph::op_name(node.op);
  if (op == "aten::floor" && node.operands[0].value()->meta->dtype == at::kDouble)
    return [](Numbers numbers) -> Number { return std::floor(numbers.front().toDouble()); };
  return quotient(node, op);
}

/// The call itself, of 0-dim tensors. `wrapped`: which of them take part in promotion as numbers of a script do.
HostNumber::Function call_function(const Node& node, std::vector<bool> wrapped) {
  const auto own = std::make_shared<graph::Graph>("number");
  graph::Copies copies;
  graph::for_each_use(node, [&](const Value* value) {
    if (!copies.count(value))
      copies[value] = own->add_input("n" + std::to_string(copies.size()), graph::InputKind::tensor, value->meta);
  });
  graph::copy_node(*own, node, copies);
  return [own = std::shared_ptr<const graph::Graph>(own), wrapped = std::move(wrapped)](Numbers numbers) -> Number {
    const Node& call = *own->nodes().front();
    const auto tensor = [&](const Value* value) {
      size_t i = 0;
      while (own->inputs()[i].value != value) ++i;
      at::Tensor made = at::scalar_tensor(numbers[i], at::TensorOptions(value->meta->dtype));
      made.unsafeGetTensorImpl()->set_wrapped_number(wrapped[i]);
      return made;
    };
    try {
      const at::Tensor made = graph::evaluate(call, tensor).at(0);
      if (made.dim() != 0 || made.scalar_type() != call.results[0]->meta->dtype) return std::nullopt;
      return made.item();
    } catch (const std::exception&) {  // the interpreter says what is wrong
      return std::nullopt;
    }
  };
}

// --- tensors of numbers and sizes ------------------------------------------------------------------------------------

/// A tensor of sizes that are those of the data, argument `sizes`, filled with a number: argument `fill`, or `number`.
bool sized(Lowering& l, size_t sizes, std::optional<size_t> fill, const c10::IValue& number = {}) {
  const auto& seen = l.node().results[0]->meta;
  if (!seen || seen->sizes.empty() || !computed_type(seen->dtype)) return false;
  const auto form = l.form_of_known_sizes(sizes, seen->sizes, seen->dtype);
  if (!form) return false;
  l.check_numbers();
  const auto value = fill ? l.operand(*fill, seen->dtype, *form) : l.number(number, seen->dtype);
  return value && l.result(0, *form, l.spread(*value, *form));
}

/// What `fill_` is in a graph.
bool fill(Lowering& l) {
  l.check_numbers();
  return filled(l, 1);
}

}  // namespace

bool filled(Lowering& l, std::optional<size_t> fill, const c10::IValue& number) {
  const auto x = l.lowered(0);
  const auto& seen = l.node().results[0]->meta;
  if (!x || !seen || (x->form.kind != Kind::element && x->form.kind != Kind::row) || !computed_type(seen->dtype))
    return false;
  TensorForm form = x->form;
  form.dtype = seen->dtype;
  const auto value = fill ? l.operand(*fill, seen->dtype, form) : l.number(number, seen->dtype);
  return value && l.result(0, form, l.spread(*value, form));
}

bool is_host_call(const Node& node) {
  bool all = node.results.size() == 1 && is_host_number(node.results[0]) &&
             computed_type(node.results[0]->meta->dtype) && graph::computes_only(node.op) && !graph::has_order(node),
       any = false;
  for (const graph::Operand& operand : node.operands) {
    all = all && !operand.list();
    if (const Value* value = operand.value()) any = true, all = all && is_host_number(value);
  }
  return all && any;
}

bool Lowering::host_call() {
  std::vector<Ref> operands;
  std::vector<bool> wrapped;
  std::vector<const Value*> seen;
  for (size_t i = 0; i < node_->operands.size(); ++i) {
    const Value* value = tensor(i);
    if (!value || std::count(seen.begin(), seen.end(), value)) continue;
    const auto number = lowered(i);
    if (!number || !this->value(number->value).on_host) return false;
    seen.push_back(value);
    operands.push_back(number->value);
    wrapped.push_back(wrapped_ && wrapped_->count(value));
  }
  HostNumber made;
  made.function = quick_function(*node_);
  if (!made.function) made.function = call_function(*node_, std::move(wrapped));
  made.text = graph::op_name(node_->op);
  TensorForm form;
  form.dtype = node_->results[0]->meta->dtype;
  return result(0, form, host_number(std::move(made), form.dtype, std::move(operands)));
}

/// The form of a new tensor of the sizes that argument `argument` asks for, `seen` at capture: those of data that is
/// there. What is not known to be such a size is looked at in each call.
std::optional<TensorForm> Lowering::form_of_known_sizes(size_t argument, const std::vector<int64_t>& seen,
                                                        at::ScalarType dtype) {
  const size_t extents = loops_.extents.size();
  const auto form = batch_form(seen, dtype);
  const auto is_data = [](const LoopInput& input) {
    return input.form.kind == Kind::row || input.form.kind == Kind::element || input.form.kind == Kind::record;
  };
  if (!form || loops_.extents.size() != extents || std::none_of(loops_.inputs.begin(), loops_.inputs.end(), is_data))
    return std::nullopt;  // nobody would tell how large it is
  int32_t next = 0;
  for (size_t dim = 0; dim < seen.size(); ++dim) {
    const auto asked = size_asked(argument, dim);
    if (!asked) return std::nullopt;
    const bool one = dim > 0 && seen[dim] == 1, fixed = value(*asked).is(Opcode::literal);
    if (one && !fixed) return std::nullopt;  // it need not stay 1
    const int32_t at = one || dim == 0 ? 0 : next++;
    const bool as_it_is = fixed && value(*asked).numbers[0] < 0;  // of `expand`
    if (!one && !as_it_is) loops_.size_checks.push_back({*asked, dim == 0 ? -1 : form->extent, at});
  }
  return form;
}

/// Item `item` of a list of sizes, as a number that the host knows.
std::optional<Ref> Lowering::size_asked(size_t argument, size_t item) {
  const graph::Operand& operand = node_->operands.at(argument);
  const auto literal_of = [&](const c10::IValue& size) {
    return size.isInt() ? std::optional(literal(Type::i64, size.toInt())) : std::nullopt;
  };
  if (const auto* fixed = operand.constant())
    return fixed->isIntList() ? literal_of(fixed->toIntVector().at(item)) : std::nullopt;
  const auto* items = operand.list();
  if (!items) return std::nullopt;
  if (const auto* fixed = items->at(item).constant()) return literal_of(*fixed);
  const Value* size = items->at(item).value();
  const auto number = size && is_host_number(size) ? lowered(*size) : std::nullopt;
  return number && value(number->value).on_host ? std::optional(number->value) : std::nullopt;
}

const LowerTable& host_numbers() {
  static const auto& table = *new LowerTable{
      {"triage::size", size},
      {"aten::zeros_like", [](Lowering& l) { return filled(l, {}, false); }},
      {"aten::ones_like", [](Lowering& l) { return filled(l, {}, true); }},
      {"aten::full_like", [](Lowering& l) { return filled(l, 1); }},
      {"aten::fill.Scalar", fill},
      {"aten::fill.Tensor", fill},
      {"aten::zeros", [](Lowering& l) { return sized(l, 0, {}, false); }},
      {"aten::ones", [](Lowering& l) { return sized(l, 0, {}, true); }},
      {"aten::full", [](Lowering& l) { return sized(l, 0, 1); }},
      {"aten::new_zeros", [](Lowering& l) { return sized(l, 1, {}, false); }},
      {"aten::new_ones", [](Lowering& l) { return sized(l, 1, {}, true); }},
      {"aten::new_full", [](Lowering& l) { return sized(l, 1, 2); }},
  };
  return table;
}

}  // namespace triage::fused
