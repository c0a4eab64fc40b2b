// Elementwise operators that are more than a formula (formulas.cpp).
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/backends/fused/lowering/lowering.h"
#include "runtime/graph/evaluation/number_math.h"

namespace triage::fused {

bool includes(Dtypes dtypes, at::ScalarType dtype) {
  const bool real = at::isFloatingType(dtype);
  switch (dtypes) {
    case Dtypes::any:
      return true;
    case Dtypes::number:
      return dtype != at::kBool;
    case Dtypes::real:
      return real;
    case Dtypes::single_or_double:
      return dtype == at::kFloat || dtype == at::kDouble;
    case Dtypes::single_or_half:
      return real && dtype != at::kDouble;
    case Dtypes::bfloat16:
      return dtype == at::kBFloat16;
    case Dtypes::integer:
      return at::isIntegralType(dtype, false);
    case Dtypes::whole:
      return at::isIntegralType(dtype, true);
    case Dtypes::int_or_long:
      return dtype == at::kInt || dtype == at::kLong;
    case Dtypes::boolean:
      return dtype == at::kBool;
  }
  return false;
}

namespace {

using Kind = TensorForm::Kind;

/// The arguments that a formula takes, as its operands; others have none.
std::optional<std::vector<Ref>> operands_of(Lowering& l, const Formula& formula, at::ScalarType dtype,
                                            const TensorForm& form) {
  std::vector<Ref> operands;
  for (const size_t argument : formula.operands()) {
    const auto operand = l.operand(argument, dtype, form);
    if (!operand) return std::nullopt;
    operands.resize(argument + 1, -1);
    operands[argument] = *operand;
  }
  return operands;
}

/// A number computed from numbers, of one dtype that ATen computes in as C++ does.
bool from_numbers(Lowering& l, Dtypes dtypes, const Formula& formula) {
  const auto& seen = l.node().results[0]->meta;
  if (!seen || !seen->sizes.empty() || !includes(dtypes, seen->dtype)) return false;
  if (seen->dtype != at::kDouble && seen->dtype != at::kFloat && seen->dtype != at::kLong) return false;
  TensorForm form;
  form.dtype = seen->dtype;
  for (const size_t argument : formula.operands())
    if (const auto* value = l.tensor(argument); value && (!value->meta || value->meta->dtype != form.dtype))
      return false;
  const auto operands = operands_of(l, formula, form.dtype, form);
  return operands && l.result(0, form, l.map(form.dtype, formula, *operands));
}

/// Versions differ in what one bound alone does that is NaN: it leaves everything as it is, or makes everything NaN.
bool lone_nan_bound_is_ignored() {
  static const bool ignored = !at::zeros({1}).clamp(std::numeric_limits<double>::quiet_NaN()).isnan().item<bool>();
  return ignored;
}

}  // namespace

namespace {

/// In which dtype ATen computes: where a number is of a higher category than the tensors (a mask times 2, a count above
/// 0.5), another one than theirs. What is no condition says it by its result.
std::optional<at::ScalarType> computed_dtype(Lowering& l, const Formula& formula) {
  const auto dtype = l.common_dtype(formula.operands());
  const auto& seen = l.node().results[0]->meta;
  if (!dtype || !seen || at::isFloatingType(*dtype)) return dtype;
  if (!formula.is_condition())
    return at::promote_types(*dtype, seen->dtype) == seen->dtype ? std::optional(seen->dtype) : dtype;
  at::ScalarType compared = *dtype;
  for (const size_t argument : formula.operands())
    if (const auto* number = l.constant(argument); number && number->isDouble())
      compared = at::typeMetaToScalarType(at::get_default_dtype());
    else if (number && number->isInt() && compared == at::kBool)
      compared = at::kLong;
  return compared;
}

}  // namespace

bool elementwise(Lowering& l, Dtypes dtypes, const char* text) {
  const Formula formula = parse_formula(text);
  const auto form = l.broadcast(formula.operands());
  const auto dtype = computed_dtype(l, formula);
  if (!form && !formula.is_slow() && !formula.is_condition()) return from_numbers(l, dtypes, formula);
  if (!form || !dtype || !includes(dtypes, *dtype)) return false;
  TensorForm result = *form;
  result.dtype = formula.is_condition() ? at::kBool : *dtype;
  const auto& seen = l.node().results[0]->meta;  // what ATen gave at capture: promotion as we think it is
  if (seen && seen->dtype != result.dtype) return false;
  const auto operands = operands_of(l, formula, *dtype, *form);
  return operands && l.result(0, result, l.map(result.dtype, formula, *operands));
}

/// Of two bounds, one that is NaN makes everything NaN.
bool clamp(Lowering& l) {
  if (!l.is_none(1) && !l.is_none(2)) return elementwise(l, Dtypes::number, "at_most(at_least(a, b), c)");
  const auto* bound = l.constant(l.is_none(1) ? 2 : 1);
  const bool may_be_nan = !bound || (bound->isDouble() && std::isnan(bound->toDouble()));
  const bool ignores_nan = may_be_nan && lone_nan_bound_is_ignored();
  if (l.is_none(1)) return elementwise(l, Dtypes::number, ignores_nan ? "a > c ? c : a" : "at_most(a, c)");
  return elementwise(l, Dtypes::number, ignores_nan ? "a < b ? b : a" : "at_least(a, b)");
}

namespace {

/// Limits that are tensors. One alone is ATen's maximum or minimum, of two equal zeros as well.
bool clamp_to_tensors(Lowering& l) {
  if (!l.is_none(1) && !l.is_none(2)) return clamp(l);
  return elementwise(l, Dtypes::number, l.is_none(1) ? "minimum(a, c)" : "maximum(a, b)");
}

/// add and sub, whose third argument scales the second operand.
bool sum(Lowering& l, Dtypes dtypes, const char* formula) {
  const auto* alpha = l.constant(2);
  const bool one =
      alpha && ((alpha->isInt() && alpha->toInt() == 1) || (alpha->isDouble() && alpha->toDouble() == 1.0));
  return one && elementwise(l, dtypes, formula);
}
bool sum(Lowering& l, const char* formula) { return sum(l, Dtypes::number, formula); }
bool add(Lowering& l) { return sum(l, "a + b") || sum(l, Dtypes::boolean, "a | b"); }
bool subtract(Lowering& l) { return sum(l, "a - b"); }
bool subtract_from(Lowering& l) { return l.integer(2) == int64_t{1} && elementwise(l, Dtypes::number, "b - a"); }

/// Computed in double, and rounded: of doubles that would not do.
bool power(Lowering& l) { return elementwise(l, Dtypes::single_or_half, "pow(a, b)"); }

/// x ^ number. For float16 ATen computes powers in float32, and rounds once; some of bfloat16 it rounds in between.
bool power_of_number(Lowering& l) {
  const auto* exponent = l.constant(1);
  if (!exponent || !(exponent->isInt() || exponent->isDouble())) return power(l);
  const graph::Value* x = l.tensor(0);
  if (!x || !x->meta) return false;
  const at::ScalarType dtype = x->meta->dtype;
  const double e = exponent->isInt() ? static_cast<double>(exponent->toInt()) : exponent->toDouble();
  if (e == 0.0) return at::isFloatingType(dtype) && filled(l, {}, true);
  if (e == 1.0) return elementwise(l, Dtypes::real, "a");
  if (e == 2.0) return elementwise(l, Dtypes::number, "a * a");
  if (e == 3.0)  // in half precision ATen rounds the square
    return dtype != at::kHalf &&
           (elementwise(l, Dtypes::bfloat16, "to_bfloat16(a * a) * a") || elementwise(l, Dtypes::real, "a * a * a"));
  if (e == 0.5) return dtype != at::kHalf && elementwise(l, Dtypes::real, "sqrt(a)");
  if (e == -0.5) return elementwise(l, Dtypes::single_or_double, "reciprocal(sqrt(a))");
  if (e == -1.0) return elementwise(l, Dtypes::single_or_double, "reciprocal(a)");
  if (e == -2.0) return elementwise(l, Dtypes::single_or_double, "reciprocal(a * a)");
  if (e == 4.0 && elementwise(l, Dtypes::single_or_double, "(a * a) * (a * a)")) return true;
  // ATen computes some elements with the exponent as a double: a float must be as odd, and no more zero.
  const auto single = static_cast<double>(static_cast<float>(e));
  const bool same = std::trunc(e) == e && std::isfinite(single) ? single == e : single != 0;
  return same && power(l);
}

/// How elements of form `shape` are chosen by a condition: for each, or for rows or segments at once.
Opcode selection(Lowering& l, Ref condition, const TensorForm& shape) {
  condition = l.bare(condition);
  const bool by_element = l.value(condition).place == Place::element &&
                          !(l.extents().at(shape.extent).segments >= 0 &&
                            l.extents().are_same(l.value(condition).extent, l.extents().at(shape.extent).segments));
  return by_element ? Opcode::select : Opcode::pick;
}

/// where(condition, a, b)
bool where(Lowering& l) {
  const auto form = l.broadcast({0, 1, 2});
  if (!form || !l.node().results[0]->meta) return false;
  const at::ScalarType result = l.node().results[0]->meta->dtype;
  const auto condition = l.operand(0, at::kBool, *form), a = l.operand(1, result, *form),
             b = l.operand(2, result, *form);
  if (!condition || !a || !b) return false;
  TensorForm made = *form;
  made.dtype = result;
  return l.result(0, made, l.apply(selection(l, *condition, *form), {*condition, *a, *b}));
}

bool nan_to_num(Lowering& l) {
  const auto x = l.lowered(0);
  if (!x || !at::isFloatingType(x->form.dtype) || (x->form.kind != Kind::element && x->form.kind != Kind::row))
    return false;
  const at::ScalarType dtype = x->form.dtype;
  double highest = 0;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "nan_to_num",
                                  [&] { highest = static_cast<double>(std::numeric_limits<scalar_t>::max()); });
  const double standard[] = {0.0, highest, -highest};
  std::vector<Ref> operands{x->value};
  for (size_t i = 0; i < 3; ++i) {
    const auto number = l.is_none(i + 1)    ? l.number(standard[i], dtype)
                        : l.constant(i + 1) ? l.number(*l.constant(i + 1), dtype)
                                            : std::nullopt;
    if (!number) return false;
    operands.push_back(*number);
  }
  return l.result(0, x->form, l.map(dtype, "is_nan(a) ? b : (is_inf(a) ? (a > 0 ? c : d) : a)", operands));
}

/// The same values: what is a copy, or another name, in memory is nothing in a loop.
bool same(Lowering& l) {
  const auto x = l.lowered(0);
  return x && x->form.kind != Kind::number && l.result(0, x->form, x->value);
}

bool convert(Lowering& l) {
  const auto x = l.lowered(0);
  const auto& seen = l.node().results[0]->meta;
  if (!x || !seen || x->form.kind == Kind::record) return false;
  const auto value = l.cast(x->value, x->form.dtype, seen->dtype);
  if (!value) return false;
  TensorForm form = x->form;
  form.dtype = seen->dtype;
  return l.result(0, form, *value);
}

/// triage::math: of numbers that sizes make. What compilers may put another function in the place of is not a loop's.
bool number_math(Lowering& l) {
  const graph::MathFunction* function = graph::math_of(l.node());
  TensorForm form;
  form.dtype = at::kDouble;
  if (!function || function->name != "sqrt") return false;
  const auto x = l.operand(0, at::kDouble, form);
  return x && l.result(0, form, l.map(at::kDouble, "sqrt(a)", {*x}));
}

/// masked_fill: the mask is broadcast to the data.
bool masked_fill(Lowering& l) {
  const auto x = l.lowered(0);
  if (!x || (x->form.kind != Kind::element && x->form.kind != Kind::row)) return false;
  const auto mask = l.operand(1, at::kBool, x->form), value = l.operand(2, x->form.dtype, x->form);
  if (!mask || !value) return false;
  return l.result(0, x->form, l.apply(selection(l, *mask, x->form), {*mask, *value, x->value}));
}

/// What is one a row, or the same along some dims, in every position of form `form`.
bool expanded(Lowering& l, const Lowered& x, const TensorForm& form) {
  if (x.form.kind == Kind::number) return form.kind == Kind::element && l.result(0, form, l.spread(x.value, form));
  if (!l.extents().covers(x.form, form)) return false;
  const bool same = x.form.kind == form.kind && x.form.extent == form.extent;
  return l.result(0, form, same ? x.value : l.spread(x.value, form));
}

/// expand to sizes that stand in the graph, or are those of data.
bool expand(Lowering& l) {
  const auto x = l.lowered(0);
  const auto& seen = l.node().results[0]->meta;
  if (!x || !seen || x->form.kind == Kind::record) return false;
  auto form = l.batch_form(seen->sizes, x->form.dtype);
  if (!form || !l.fix_sizes(1, seen->sizes, *form)) form = l.form_of_known_sizes(1, seen->sizes, x->form.dtype);
  return form && expanded(l, *x, *form);
}

bool expand_as(Lowering& l) {
  const auto x = l.lowered(0), other = l.lowered(1);
  if (!x || !other || x->form.kind == Kind::record ||
      (other->form.kind != Kind::row && other->form.kind != Kind::element))
    return false;
  TensorForm form = other->form;
  form.dtype = x->form.dtype;
  return expanded(l, *x, form);
}

}  // namespace

const LowerTable& elementwise_operators() {
  static const auto& table = *new LowerTable{
      {"aten::add.Tensor", add},
      {"aten::add.Scalar", add},
      {"aten::sub.Tensor", subtract},
      {"aten::subtract.Tensor", subtract},
      {"aten::subtract.Scalar", subtract},
      {"aten::sub.Scalar", subtract},
      {"aten::rsub.Scalar", subtract_from},
      {"aten::pow.Tensor_Scalar", power_of_number},
      {"aten::pow.Tensor_Tensor", power},
      {"aten::pow.Scalar", power},
      {"aten::clamp", clamp},
      {"aten::clamp.Tensor", clamp_to_tensors},
      {"aten::clip", clamp},
      {"aten::clip.Tensor", clamp_to_tensors},
      {"aten::nan_to_num", nan_to_num},
      {"aten::masked_fill.Scalar", masked_fill},
      {"aten::masked_fill.Tensor", masked_fill},
      {"aten::where.self", where},
      {"aten::where.ScalarSelf", where},
      {"aten::where.ScalarOther", where},
      {"aten::where.Scalar", where},
      {"aten::clone", same},
      {"aten::alias", same},
      {"aten::detach", same},
      {"aten::contiguous", same},
      {"triage::restride", same},  // loops make what is contiguous, of inputs in any order
      {"aten::to.dtype", convert},
      {"aten::to.dtype_layout", convert},
      {"aten::_to_copy", convert},
      {"triage::math", number_math},
      {"aten::expand", expand},
      {"aten::expand_as", expand_as},
  };
  return table;
}

}  // namespace triage::fused
