// Elementwise operators: what each computes for one element, and for which dtypes.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "runtime/backends/fused/lowering/lowering.h"
#include "runtime/graph/number_math.h"

namespace triage::fused {

bool is_real(at::ScalarType dtype) { return at::isFloatingType(dtype); }
bool is_number(at::ScalarType dtype) { return dtype != at::kBool; }
bool is_single_or_double(at::ScalarType dtype) { return dtype == at::kFloat || dtype == at::kDouble; }

namespace {

using Kind = TensorForm::Kind;

bool is_computed_in_float(at::ScalarType dtype) { return at::isFloatingType(dtype) && dtype != at::kDouble; }
bool is_bfloat16(at::ScalarType dtype) { return dtype == at::kBFloat16; }
bool is_bool(at::ScalarType dtype) { return dtype == at::kBool; }
bool is_whole(at::ScalarType dtype) { return at::isIntegralType(dtype, true); }
bool is_any(at::ScalarType) { return true; }

/// A number computed from numbers, of one dtype that ATen computes in as C++ does.
bool from_numbers(Lowering& l, std::initializer_list<size_t> arguments, bool (*allowed)(at::ScalarType),
                  const char* code) {
  const auto& seen = l.node().results[0]->meta;
  if (!seen || !seen->sizes.empty() || !allowed(seen->dtype)) return false;
  if (seen->dtype != at::kDouble && seen->dtype != at::kFloat && seen->dtype != at::kLong) return false;
  TensorForm form;
  form.dtype = seen->dtype;
  std::vector<Ref> operands;
  for (const size_t argument : arguments) {
    if (const auto* value = l.tensor(argument); value && (!value->meta || value->meta->dtype != form.dtype))
      return false;
    const auto operand = l.operand(argument, form.dtype, form);
    if (!operand) return false;
    operands.push_back(*operand);
  }
  return l.result(0, form, l.map(form.dtype, code, std::move(operands)));
}

}  // namespace

bool elementwise(Lowering& l, std::initializer_list<size_t> arguments, bool (*allowed)(at::ScalarType),
                 const char* code, bool expensive, std::optional<at::ScalarType> result_dtype) {
  const auto form = l.broadcast(arguments);
  const auto dtype = l.common_dtype(arguments);
  if (!form && !expensive && !result_dtype) return from_numbers(l, arguments, allowed, code);
  if (!form || !dtype || !allowed(*dtype)) return false;
  std::vector<Ref> operands;
  for (const size_t argument : arguments) {
    const auto operand = l.operand(argument, *dtype, *form);
    if (!operand) return false;
    operands.push_back(*operand);
  }
  TensorForm result = *form;
  result.dtype = result_dtype.value_or(*dtype);
  const auto seen = l.node().results[0]->meta;  // what ATen gave at capture: promotion as we think it is
  if (seen && seen->dtype != result.dtype) return false;
  return l.result(0, result, l.map(result.dtype, code, std::move(operands), expensive));
}

bool clamp(Lowering& l) {
  if (l.is_none(1)) return elementwise(l, {0, 2}, is_number, "at_most({0}, {1})");
  if (l.is_none(2)) return elementwise(l, {0, 1}, is_number, "at_least({0}, {1})");
  return elementwise(l, {0, 1, 2}, is_number, "at_most(at_least({0}, {1}), {2})");
}

namespace {

// Operators of one, two and three operands that need no more than a line.
#define TRIAGE_UNARY(name, allowed, code, expensive)                                \
  {                                                                                 \
    name, [](Lowering& l) { return elementwise(l, {0}, allowed, code, expensive); } \
  }
#define TRIAGE_BINARY(name, allowed, code)                                  \
  {                                                                         \
    name, [](Lowering& l) { return elementwise(l, {0, 1}, allowed, code); } \
  }
#define TRIAGE_TEST(name, code)                                                           \
  {                                                                                       \
    name, [](Lowering& l) { return elementwise(l, {0}, is_any, code, false, at::kBool); } \
  }
#define TRIAGE_COMPARE(name, code)                                                                        \
  {name ".Tensor", [](Lowering& l) { return elementwise(l, {0, 1}, is_any, code, false, at::kBool); }}, { \
    name ".Scalar", [](Lowering& l) { return elementwise(l, {0, 1}, is_any, code, false, at::kBool); }    \
  }

/// mul, which of bools is `and`.
bool product(Lowering& l) {
  return elementwise(l, {0, 1}, is_bool, "{0} & {1}") || elementwise(l, {0, 1}, is_number, "{0} * {1}");
}

/// add and sub, whose third argument scales the second operand.
template <char sign>
bool sum(Lowering& l) {
  const auto* alpha = l.constant(2);
  const bool one =
      alpha && ((alpha->isInt() && alpha->toInt() == 1) || (alpha->isDouble() && alpha->toDouble() == 1.0));
  return one && elementwise(l, {0, 1}, is_number, sign == '+' ? "{0} + {1}" : "{0} - {1}");
}

/// Computed in double, and rounded: of doubles that would not do.
bool power(Lowering& l) { return elementwise(l, {0, 1}, is_computed_in_float, "power({0}, {1})", true); }

/// x ^ number. For float16 ATen computes powers in float32, and rounds once; some of bfloat16 it rounds in between.
bool power_of_number(Lowering& l) {
  const auto* exponent = l.constant(1);
  if (!exponent || !(exponent->isInt() || exponent->isDouble())) return power(l);
  const double e = exponent->isInt() ? static_cast<double>(exponent->toInt()) : exponent->toDouble();
  if (e == 0.0) return elementwise(l, {0}, is_real, "((void){0}, 1)");
  if (e == 1.0) return elementwise(l, {0}, is_real, "{0}");
  if (e == 2.0) return elementwise(l, {0}, is_number, "{0} * {0}");
  const graph::Value* x = l.tensor(0);
  if (!x || !x->meta) return false;
  const bool is_half = x->meta->dtype == at::kHalf;
  if (e == 3.0)  // in half precision ATen rounds the square
    return !is_half && (elementwise(l, {0}, is_bfloat16, "as_bfloat16({0} * {0}) * {0}") ||
                        elementwise(l, {0}, is_real, "{0} * {0} * {0}"));
  if (e == 0.5) return !is_half && elementwise(l, {0}, is_real, "root({0})", true);
  if (e == -0.5) return elementwise(l, {0}, is_single_or_double, "1 / root({0})", true);
  if (e == -1.0) return elementwise(l, {0}, is_single_or_double, "1 / {0}", true);
  if (e == -2.0) return elementwise(l, {0}, is_single_or_double, "1 / ({0} * {0})", true);
  if (e == 4.0 && elementwise(l, {0}, is_single_or_double, "({0} * {0}) * ({0} * {0})")) return true;
  return power(l);
}

/// floor and its kind: whole numbers stay as they are.
template <const char* code>
bool to_whole(Lowering& l) {
  return elementwise(l, {0}, is_real, code) ||
         elementwise(
             l, {0}, [](at::ScalarType d) { return is_number(d) && is_whole(d); }, "{0}");
}
constexpr char floor_code[] = "floor_of({0})", ceil_code[] = "ceiling_of({0})", trunc_code[] = "whole_part_of({0})",
               round_code[] = "nearest_whole({0})";

/// How elements of form `shape` are chosen by a condition: for each, or for rows or segments at once.
const char* selection(Lowering& l, Ref condition, const TensorForm& shape) {
  const bool by_element = l.value(condition).place == Place::element &&
                          !(l.extent(shape).segments >= 0 && l.value(condition).extent == l.extent(shape).segments);
  return by_element ? "{0} ? {1} : {2}" : row_selection;
}

/// where(condition, a, b)
bool where(Lowering& l) {
  const auto form = l.broadcast({0, 1, 2});
  const auto dtype = l.common_dtype({1, 2});
  if (!form || !l.node().results[0]->meta) return false;
  const at::ScalarType result = l.node().results[0]->meta->dtype;
  if (dtype && *dtype != result) return false;
  const auto condition = l.operand(0, at::kBool, *form), a = l.operand(1, result, *form),
             b = l.operand(2, result, *form);
  if (!condition || !a || !b) return false;
  TensorForm made = *form;
  made.dtype = result;
  return l.result(0, made, l.map(result, selection(l, *condition, *form), {*condition, *a, *b}));
}

bool nan_to_num(Lowering& l) {
  const auto x = l.lowered(0);
  if (!x || !is_real(x->form.dtype) || (x->form.kind != Kind::element && x->form.kind != Kind::row)) return false;
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
  return l.result(0, x->form, l.map(dtype, "nan_to_num({0}, {1}, {2}, {3})", std::move(operands)));
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

/// triage::size: of a dim of a row. How many rows there are, a kernel does not know.
bool size(Lowering& l) {
  const auto x = l.lowered(0);
  const auto dim = l.integer(1);
  if (!x || !dim || x->form.kind != Kind::element) return false;
  const int64_t at = (*dim < 0 ? *dim + x->form.rank : *dim) - 1;
  if (at < 0 || at >= x->form.rank - 1 || x->form.trailing[static_cast<size_t>(at)] == 1) return false;
  const auto& trailing = x->form.trailing;
  const auto before = std::count_if(trailing.begin(), trailing.begin() + at, [](int64_t size) { return size != 1; });
  const size_t dims = l.extent(x->form).sizes.size();
  if (dims > 2) return false;
  TensorForm form;
  form.dtype = at::kLong;
  const auto counted =
      l.part_of(x->form.extent, dims == 1 ? std::vector<bool>{true} : std::vector<bool>{before == 0, before != 0});
  return counted && l.result(0, form, l.map(at::kLong, fmt::format("(int64_t)d{}", *counted), {}));
}

/// triage::math: of numbers that sizes make. What compilers may put another function in the place of is not a loop's.
bool number_math(Lowering& l) {
  const graph::MathFunction* function = graph::math_of(l.node());
  TensorForm form;
  form.dtype = at::kDouble;
  if (!function || function->name != "sqrt") return false;
  const auto x = l.operand(0, at::kDouble, form);
  return x && l.result(0, form, l.map(at::kDouble, "root({0})", {*x}));
}

/// zeros_like and its kind: a number in the form of the argument.
bool filled(Lowering& l, const c10::IValue& number) {
  const auto x = l.lowered(0);
  const auto& seen = l.node().results[0]->meta;
  if (!x || !seen || (x->form.kind != Kind::element && x->form.kind != Kind::row) || computed_type(seen->dtype).empty())
    return false;
  const auto value = l.number(number, seen->dtype);
  if (!value) return false;
  TensorForm form = x->form;
  form.dtype = seen->dtype;
  return l.result(0, form, l.map(seen->dtype, "((void){1}, {0})", {*value, x->value}));
}

/// masked_fill: the mask is broadcast to the data.
bool masked_fill(Lowering& l) {
  const auto x = l.lowered(0);
  if (!x || (x->form.kind != Kind::element && x->form.kind != Kind::row)) return false;
  const auto mask = l.operand(1, at::kBool, x->form), value = l.operand(2, x->form.dtype, x->form);
  if (!mask || !value) return false;
  return l.result(0, x->form, l.map(x->form.dtype, selection(l, *mask, x->form), {*mask, *value, x->value}));
}

/// expand to sizes that stand in the graph: what is one a row, or the same along some dims, in every position.
bool expand(Lowering& l) {
  const auto x = l.lowered(0);
  const auto& seen = l.node().results[0]->meta;
  if (!x || !seen || x->form.kind == Kind::record) return false;
  const auto form = l.batch_form(seen->sizes, x->form.dtype);
  if (!form || !l.fix_sizes(1, seen->sizes, *form)) return false;
  const bool whole = form->kind == Kind::element;
  if (x->form.kind == Kind::number) return whole && l.result(0, *form, l.spread(x->value, *form));
  if (!l.covers(x->form, *form)) return false;
  const bool same = x->form.kind == form->kind && x->form.extent == form->extent;
  return l.result(0, *form, same ? x->value : l.spread(x->value, *form));
}

/// view and its kind: to the same sizes, or with other dims of size 1.
bool view(Lowering& l) {
  const auto x = l.lowered(0);
  const auto& seen = l.node().results[0]->meta;
  if (!x || !seen || (x->form.kind != Kind::row && x->form.kind != Kind::element)) return false;
  const auto form = l.batch_form(seen->sizes, x->form.dtype);
  return form && form->kind == x->form.kind && form->extent == x->form.extent && l.fix_sizes(1, seen->sizes, *form) &&
         l.result(0, *form, x->value);
}

/// One dim of size 1 more or less, behind the batch: another shape for the same values.
bool reshaped_by_one(Lowering& l, int64_t more) {
  const auto x = l.lowered(0);
  const auto dim = l.integer(1);
  if (!x || !dim || (x->form.kind != Kind::row && x->form.kind != Kind::element)) return false;
  TensorForm form = x->form;
  const int64_t at = (*dim < 0 ? *dim + form.rank + (more > 0 ? 1 : 0) : *dim) - 1;
  if (at < 0 || at >= form.rank - (more > 0 ? 0 : 1)) return false;
  form.rank += more;
  if (form.kind == Kind::row) return l.result(0, form, x->value);
  if (more > 0)
    form.trailing.insert(form.trailing.begin() + at, 1);
  else if (form.trailing[static_cast<size_t>(at)] == 1)
    form.trailing.erase(form.trailing.begin() + at);
  else
    return false;
  return l.result(0, form, x->value);
}

bool unsqueeze(Lowering& l) { return reshaped_by_one(l, 1); }
bool squeeze(Lowering& l) { return reshaped_by_one(l, -1); }

}  // namespace

const LowerTable& elementwise_operators() {
  static const LowerTable table = {
      {"aten::add.Tensor", sum<'+'>},
      {"aten::add.Scalar", sum<'+'>},
      {"aten::sub.Tensor", sum<'-'>},
      {"aten::sub.Scalar", sum<'-'>},
      {"aten::rsub.Scalar",
       [](Lowering& l) {
         const auto alpha = l.integer(2);
         return alpha == int64_t{1} && elementwise(l, {0, 1}, is_number, "{1} - {0}");
       }},
      {"aten::mul.Tensor", product},
      TRIAGE_BINARY("aten::mul.Scalar", is_number, "{0} * {1}"),
      TRIAGE_BINARY("aten::div.Tensor", is_real, "{0} / {1}"),
      TRIAGE_BINARY("aten::div.Scalar", is_real, "{0} / {1}"),
      TRIAGE_BINARY("aten::maximum", is_number, "maximum({0}, {1})"),
      TRIAGE_BINARY("aten::minimum", is_number, "minimum({0}, {1})"),
      {"aten::pow.Tensor_Scalar", power_of_number},
      {"aten::pow.Tensor_Tensor", power},
      {"aten::pow.Scalar", power},
      TRIAGE_UNARY("aten::square", is_number, "{0} * {0}", false),
      {"aten::floor", to_whole<floor_code>},
      {"aten::ceil", to_whole<ceil_code>},
      {"aten::trunc", to_whole<trunc_code>},
      {"aten::fix", to_whole<trunc_code>},
      {"aten::round", to_whole<round_code>},
      TRIAGE_UNARY("aten::frac", is_real, "{0} - whole_part_of({0})", false),
      TRIAGE_UNARY("aten::neg", is_number, "-{0}", false),
      TRIAGE_UNARY("aten::abs", is_number, "magnitude_of({0})", false),
      TRIAGE_UNARY("aten::sign", is_real, "sign_of({0})", false),
      TRIAGE_UNARY("aten::sgn", is_real, "sign_of({0})", false),
      TRIAGE_UNARY("aten::relu", is_number, "at_least({0}, (decltype(value_of({0})))0)", false),
      TRIAGE_UNARY("aten::reciprocal", is_real, "1 / {0}", true),
      TRIAGE_UNARY("aten::sqrt", is_real, "root({0})", true),
      TRIAGE_UNARY("aten::rsqrt", is_real, "1 / root({0})", true),
      TRIAGE_UNARY("aten::exp", is_real, "exponential({0})", true),
      TRIAGE_UNARY("aten::log", is_real, "logarithm({0})", true),
      TRIAGE_UNARY("aten::expm1", is_real, "exponential_minus_one({0})", true),
      TRIAGE_UNARY("aten::log1p", is_real, "logarithm_of_one_plus({0})", true),
      TRIAGE_UNARY("aten::exp2", is_real, "exponential_of_two({0})", true),
      TRIAGE_UNARY("aten::log2", is_real, "logarithm_of_base_two({0})", true),
      TRIAGE_UNARY("aten::log10", is_real, "logarithm_of_base_ten({0})", true),
      TRIAGE_UNARY("aten::sinh", is_real, "hyperbolic_sine({0})", true),
      TRIAGE_UNARY("aten::cosh", is_real, "hyperbolic_cosine({0})", true),
      TRIAGE_UNARY("aten::asin", is_real, "arc_sine({0})", true),
      TRIAGE_UNARY("aten::acos", is_real, "arc_cosine({0})", true),
      TRIAGE_UNARY("aten::atan", is_real, "arc_tangent({0})", true),
      {"aten::atan2",
       [](Lowering& l) {
         return elementwise(l, {0, 1}, is_computed_in_float, "arc_tangent_of_point({0}, {1})", true);
       }},
      TRIAGE_UNARY("aten::erf", is_real, "error_function({0})", true),
      TRIAGE_UNARY("aten::tanh", is_real, "hyperbolic_tangent({0})", true),
      TRIAGE_UNARY("aten::sigmoid", is_real, "sigmoid({0})", true),
      {"aten::clamp", clamp},
      TRIAGE_BINARY("aten::clamp_min", is_number, "at_least({0}, {1})"),
      TRIAGE_BINARY("aten::clamp_max", is_number, "at_most({0}, {1})"),
      {"aten::nan_to_num", nan_to_num},
      TRIAGE_TEST("aten::isnan", "is_nan({0})"),
      TRIAGE_TEST("aten::isinf", "is_inf({0})"),
      TRIAGE_TEST("aten::isfinite", "is_finite({0})"),
      TRIAGE_TEST("aten::logical_not", "{0} == 0"),
      TRIAGE_COMPARE("aten::eq", "{0} == {1}"),
      TRIAGE_COMPARE("aten::ne", "{0} != {1}"),
      TRIAGE_COMPARE("aten::lt", "{0} < {1}"),
      TRIAGE_COMPARE("aten::le", "{0} <= {1}"),
      TRIAGE_COMPARE("aten::gt", "{0} > {1}"),
      TRIAGE_COMPARE("aten::ge", "{0} >= {1}"),
      TRIAGE_BINARY("aten::logical_and", is_bool, "{0} & {1}"),
      TRIAGE_BINARY("aten::logical_or", is_bool, "{0} | {1}"),
      TRIAGE_BINARY("aten::logical_xor", is_bool, "{0} != {1}"),
      TRIAGE_BINARY("aten::bitwise_and.Tensor", is_whole, "{0} & {1}"),
      TRIAGE_BINARY("aten::bitwise_or.Tensor", is_whole, "{0} | {1}"),
      TRIAGE_BINARY("aten::bitwise_xor.Tensor", is_whole, "{0} ^ {1}"),
      TRIAGE_UNARY("aten::bitwise_not", is_bool, "!{0}", false),
      TRIAGE_BINARY("aten::tanh_backward", is_real, "{0} * (1 - {1} * {1})"),
      TRIAGE_BINARY("aten::sigmoid_backward", is_real, "{0} * (1 - {1}) * {1}"),
      {"aten::threshold_backward",
       [](Lowering& l) {
         return elementwise(l, {0, 1, 2}, is_number, "{1} <= {2} ? 0 : {0}");
       }},
      {"aten::masked_fill.Scalar", masked_fill},
      {"aten::where.self", where},
      {"aten::where.ScalarSelf", where},
      {"aten::where.ScalarOther", where},
      {"aten::clone", same},
      {"aten::alias", same},
      {"aten::detach", same},
      {"aten::contiguous", same},
      {"aten::to.dtype", convert},
      {"aten::to.dtype_layout", convert},
      {"aten::_to_copy", convert},
      {"aten::zeros_like", [](Lowering& l) { return filled(l, c10::IValue(0)); }},
      {"aten::ones_like", [](Lowering& l) { return filled(l, c10::IValue(1)); }},
      {"aten::full_like", [](Lowering& l) { return l.constant(1) && filled(l, *l.constant(1)); }},
      {"triage::size", size},
      {"triage::math", number_math},
      {"aten::expand", expand},
      {"aten::view", view},
      {"aten::reshape", view},
      {"aten::_unsafe_view", view},
      {"aten::unsqueeze", unsqueeze},
      {"aten::squeeze.dim", squeeze},
  };
  return table;
}

}  // namespace triage::fused
