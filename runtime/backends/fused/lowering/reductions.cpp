// Reductions over everything but the batch, or over some dims of it, and what is made of them: softmax, standard
// deviations.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "runtime/backends/fused/lowering/known_bounds.h"
#include "runtime/backends/fused/lowering/lowering.h"

namespace triage::fused {
namespace {

using Kind = TensorForm::Kind;

struct ReducedRows {
  Ref element;
  TensorForm form;    // of the argument
  TensorForm result;  // one value a row, or a segment
  int32_t segments;   // the extent of the segments; -1: whole rows
};

/// The dims of constant `dims`, counted from the first of the batch.
std::vector<int64_t> dims_of(const c10::IValue& dims, int64_t rank) {
  std::vector<int64_t> list;
  if (dims.isInt()) list = {dims.toInt()};
  if (dims.isIntList()) list = dims.toIntVector();
  for (auto& dim : list) dim = dim < 0 ? dim + rank : dim;
  return list;
}

/// Element argument 0 as rows of `dims`: all of a row, or dims side by side of it, each segment of which is a row then.
/// `again`: also where its rows are split in another way already, for results that have no positions.
std::optional<ReducedRows> rows_over(Lowering& l, Lowered x, const std::vector<int64_t>& dims, bool keepdim,
                                     bool again) {
  const auto& seen = l.node().results[0]->meta;
  if (x.form.kind != Kind::element || dims.empty() || !seen) return std::nullopt;
  TensorForm result = x.form;
  result.dtype = seen->dtype;
  std::vector<bool> joined;  // of the dims of the extent
  for (size_t i = 0; i < x.form.trailing.size(); ++i) {
    const bool gone = std::count(dims.begin(), dims.end(), static_cast<int64_t>(i) + 1) > 0;
    if (x.form.trailing[i] != 1) joined.push_back(gone);
    if (gone) result.trailing[i] = keepdim ? 1 : -1;
  }
  for (const int64_t dim : dims)
    if (dim < 1 || dim >= x.form.rank) return std::nullopt;
  result.trailing.erase(std::remove(result.trailing.begin(), result.trailing.end(), -1), result.trailing.end());
  result.rank = static_cast<int64_t>(result.trailing.size()) + 1;
  if (std::count(joined.begin(), joined.end(), true) == 0) return std::nullopt;
  if (std::count(joined.begin(), joined.end(), false) == 0)
    return ReducedRows{x.value, x.form, row_form(seen->dtype, result.rank), -1};
  joined.flip();
  if (!l.extents().split(x.form.extent, joined)) {
    const auto other = again ? l.split_again(x, joined) : std::nullopt;
    if (!other) return std::nullopt;
    x = *other;
  }
  result.extent = l.extents().at(x.form.extent).segments;
  return ReducedRows{x.value, x.form, result, result.extent};
}

/// Argument 0 where it has elements, and argument `dim` names the dims of a row; `keepdim`: index of that argument.
std::optional<ReducedRows> rows(Lowering& l, size_t dim, std::optional<size_t> keepdim) {
  const auto x = l.lowered(0);
  const auto* dims = l.constant(dim);
  const auto keep = keepdim ? l.flag(*keepdim) : std::optional(true);
  if (!x || !dims || !keep) return std::nullopt;
  return rows_over(l, *x, dims_of(*dims, x->form.rank), *keep, keepdim.has_value());
}

/// The type in which ATen adds up values of this dtype.
Type sum_type(at::ScalarType dtype) {
  if (dtype == at::kDouble) return Type::f64;
  return at::isFloatingType(dtype) ? Type::f32 : Type::i64;
}

/// The dtype in which values are computed that are rounded at the end only.
at::ScalarType wide(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype; }

/// `rows`, and its elements in the dtype that argument `dtype` asks for, which ATen converts to first.
std::optional<ReducedRows> rows_in(Lowering& l, size_t dim, size_t keepdim, size_t dtype) {
  auto r = rows(l, dim, keepdim);
  if (!r || l.is_none(dtype)) return r;
  const auto asked = l.integer(dtype);
  if (!asked || *asked != static_cast<int64_t>(r->result.dtype)) return std::nullopt;
  const auto element = l.cast(r->element, r->form.dtype, r->result.dtype);
  if (!element) return std::nullopt;
  r->element = *element;
  r->form.dtype = r->result.dtype;
  return r;
}

bool is_plus_zero(const LoopValue& number) {
  return number.is(Opcode::literal) && is_real(number.type) && number.numbers[0] == 0;
}

/// The sum of `element` over its rows, which lie as those of `r` do.
Ref sum_of(Lowering& l, const ReducedRows& r, Ref element) {
  // The sum of a row that a selection may have made 0 is the sum of the row, or 0: it need not wait for the selection.
  if (const auto picked = l.picked_rows(element); picked && is_plus_zero(l.value(picked->value)))
    return l.apply(Opcode::pick, {picked->taken, picked->value, sum_of(l, r, picked->kept)});
  return l.reduce(Join::sum, l.converted(element, sum_type(l.value(element).dtype)), r.segments);
}
Ref sum_of_squares(Lowering& l, const ReducedRows& r, Ref element) { return sum_of(l, r, l.step("a * a", {element})); }

/// Whether a condition holds somewhere in a row, or in a segment of it.
Ref search(Lowering& l, const ReducedRows& r, const char* condition, Ref element) {
  const Ref asked = l.step(condition, {element}), holds = decided_by_bounds(l, asked);
  if (holds != asked && r.segments < 0 && l.value(holds).is(Opcode::is_nan) &&
      is_real(l.value(l.value(holds).operands[0]).type))
    return nan_in_rows(l, l.value(holds).operands[0]);  // which a policy often looks for
  const auto found = [&](Ref condition_of_one) {
    return l.as_step(l.apply(Opcode::convert, {l.reduce(Join::any, condition_of_one, r.segments)}, {}, Type::boolean));
  };
  const auto picked = r.segments < 0 ? l.picked_rows(holds) : std::nullopt;
  if (!picked) return found(holds);
  const Ref kept = found(picked->kept);
  if (const auto known = known_condition(l, picked->value))
    return l.step(*known ? "a | b" : "!a & b", {picked->taken, kept});
  return l.step("(a & b) | (!a & c)", {picked->taken, picked->value, kept});
}

/// How many positions there are in a row or a segment, as a number of that dtype.
Ref count(Lowering& l, const ReducedRows& r, at::ScalarType dtype) {
  return l.converted(l.count(r.element, r.segments), computed_type(dtype).value());
}

bool sum(Lowering& l) {
  const auto r = rows_in(l, 1, 2, 3);
  return r && l.result(0, r->result, sum_of(l, *r, r->element));
}

bool mean(Lowering& l) {
  const auto r = rows_in(l, 1, 2, 3);
  if (!r || !at::isFloatingType(r->form.dtype)) return false;
  const Ref total = l.map(r->form.dtype, "a", {sum_of(l, *r, r->element)});  // ATen divides the rounded sum
  return l.result(0, r->result, l.map(r->result.dtype, "a / b", {total, count(l, *r, r->form.dtype)}));
}

bool product(Lowering& l) {
  const auto r = rows_in(l, 1, 2, 3);
  if (!r) return false;
  const Ref element = l.converted(r->element, sum_type(r->form.dtype));
  return l.result(0, r->result, l.reduce(Join::product, element, r->segments));
}

bool is_bool(const ReducedRows& r) { return r.form.dtype == at::kBool; }

/// The largest (smallest) value, NaN where there is one.
Ref extreme(Lowering& l, const ReducedRows& r, Ref element, bool largest) {
  const Ref found = l.reduce(largest ? Join::largest : Join::smallest, element, r.segments);
  if (!is_real(l.value(found).type)) return found;
  const Ref nan = search(l, r, "is_nan(a)", element);
  return l.map(l.value(found).dtype, "b ? nan : a", {found, nan});
}

template <bool largest>
bool extreme_of_rows(Lowering& l) {
  const auto r = rows(l, 1, 2);
  if (!r || is_bool(*r)) return false;
  return l.result(0, r->result, extreme(l, *r, r->element, largest));
}

bool any(Lowering& l) {
  const auto r = rows(l, 1, 2);
  return r &&
         l.result(0, r->result, l.map(r->result.dtype, "a", {search(l, *r, is_bool(*r) ? "a" : "a != 0", r->element)}));
}

bool all(Lowering& l) {
  const auto r = rows(l, 1, 2);
  return r && l.result(0, r->result,
                       l.map(r->result.dtype, "!a", {search(l, *r, is_bool(*r) ? "!a" : "a == 0", r->element)}));
}

/// The sum of squared distances from the mean over (count - correction), or its root.
bool spread(Lowering& l, const ReducedRows& r, int64_t correction, bool root) {
  if (!at::isFloatingType(r.form.dtype)) return false;
  const at::ScalarType dtype = wide(r.form.dtype);
  const Type type = computed_type(dtype).value();
  const Ref mean = l.map(dtype, "a / b", {sum_of(l, r, r.element), count(l, r, dtype)});
  const Ref squares = sum_of_squares(l, r, l.map(dtype, "a - b", {r.element, mean}));
  const Ref positions = l.count(r.element, r.segments), less = l.literal(Type::i64, correction);
  const Ref divisor = l.converted(l.step("at_least(a - b, 0)", {positions, less}), type);
  const Ref result = l.map(r.result.dtype, root ? "sqrt(a / b)" : "a / b", {squares, divisor});
  l.do_not_keep(result);
  return l.result(0, r.result, result);
}

/// std and var with `unbiased`, a bool.
template <bool root>
bool spread_unbiased(Lowering& l) {
  const auto r = rows(l, 1, 3);
  const auto unbiased = l.flag(2);
  return r && unbiased && spread(l, *r, *unbiased ? 1 : 0, root);
}

template <bool root>
bool spread_corrected(Lowering& l) {
  const auto r = rows(l, 1, 3);
  const auto correction = l.is_none(2) ? std::optional<int64_t>(1) : l.integer(2);
  return r && correction && *correction >= 0 && spread(l, *r, *correction, root);
}

/// Argument 0 as rows of a dim, for functions of whole rows whose results have the form of their argument.
std::optional<ReducedRows> whole_rows(Lowering& l, size_t dim) {
  const auto r = rows(l, dim, {});
  return r && at::isFloatingType(r->form.dtype) ? r : std::nullopt;
}

/// Argument 2 is the dtype to convert to first; of _softmax, whether halves become floats.
template <bool logarithmic>
bool softmax(Lowering& l) {
  const auto r = whole_rows(l, 1);
  if (!r) return false;
  TensorForm form = r->form;
  form.dtype = r->result.dtype;
  if (!at::isFloatingType(form.dtype)) return false;
  const auto element = l.cast(r->element, r->form.dtype, form.dtype);
  if (!element) return false;
  const at::ScalarType dtype = wide(form.dtype);
  // The bare maximum: a NaN makes NaN of every position anyhow, by the sum.
  const Ref largest = l.reduce(Join::largest, *element, r->segments);
  const Ref shifted = l.map(dtype, "a - b", {*element, largest});
  const Ref power = l.map(dtype, "exp(a)", {shifted});
  const Ref total = sum_of(l, *r, power);
  if (logarithmic) return l.result(0, form, l.map(form.dtype, "a - b", {shifted, l.map(dtype, "log(a)", {total})}));
  return l.result(0, form, l.map(form.dtype, "a * b", {power, l.map(dtype, "reciprocal(a)", {total})}));
}

/// The gradient of softmax: of what came out (b), and of what came in from behind (a).
template <bool logarithmic>
bool softmax_backward(Lowering& l) {
  const auto r = whole_rows(l, 2);
  if (!r || wide(r->form.dtype) != r->form.dtype) return false;
  const at::ScalarType dtype = r->form.dtype;
  const auto output = l.operand(1, dtype, r->form);
  if (!output || r->result.dtype != dtype) return false;
  if (logarithmic) {
    const Ref total = sum_of(l, *r, r->element), share = l.map(dtype, "exp(a)", {*output});
    return l.result(0, r->form, l.map(dtype, "a - b * c", {r->element, share, total}));
  }
  const Ref total = sum_of(l, *r, l.map(dtype, "a * b", {r->element, *output}));
  return l.result(0, r->form, l.map(dtype, "(a - c) * b", {r->element, *output, total}));
}

/// The sum of magnitudes, their Euclidean norm, and the largest of them.
bool norm(Lowering& l, size_t order, size_t dim, size_t keepdim) {
  const auto r = rows(l, dim, keepdim);
  const auto* p = l.constant(order);
  if (!r || !p || !(p->isInt() || p->isDouble()) || !at::isFloatingType(r->form.dtype) ||
      r->result.dtype != r->form.dtype)
    return false;
  const double power = p->isInt() ? static_cast<double>(p->toInt()) : p->toDouble();
  if (power == 2.0) {
    const Ref result = l.map(r->result.dtype, "sqrt(a)", {sum_of_squares(l, *r, r->element)});
    l.do_not_keep(result);
    return l.result(0, r->result, result);
  }
  const Ref magnitude = l.map(r->form.dtype, "abs(a)", {r->element});
  if (power == 1.0) return l.result(0, r->result, sum_of(l, *r, magnitude));
  return std::isinf(power) && l.result(0, r->result, extreme(l, *r, magnitude, power > 0));
}

/// Where the largest (smallest) value stands: the first of equal ones; a NaN before all numbers.
Ref position(Lowering& l, const ReducedRows& r, Ref found) {
  const Ref position = l.position(r.element, r.segments), none = l.literal(Type::i64, INT64_MAX);
  const Ref here = l.map(at::kLong, "(a == b) | (is_nan(a) & is_nan(b)) ? c : d", {r.element, found, position, none});
  return l.reduce(Join::smallest, here, r.segments);
}

template <bool largest>
bool arg_extreme(Lowering& l) {
  const auto r = rows(l, 1, 2);
  if (!r || is_bool(*r)) return false;
  return l.result(0, r->result, position(l, *r, extreme(l, *r, r->element, largest)));
}

/// max and min along a dim: the value, and where it stands.
template <bool largest>
bool extreme_with_position(Lowering& l) {
  const auto r = rows(l, 1, 2);
  if (!r || is_bool(*r)) return false;
  const Ref found = extreme(l, *r, r->element, largest);
  TensorForm positions = r->result;
  positions.dtype = at::kLong;
  return l.result(0, r->result, found) && l.result(1, positions, position(l, *r, found));
}

/// layer_norm and native_layer_norm: x, the last sizes of it, weight, bias, eps. The latter gives mean and 1 /
/// deviation too.
template <bool native>
bool layer_norm(Lowering& l) {
  const auto x = l.lowered(0);
  const auto *sizes = l.constant(1), *eps = l.constant(4);
  if (!x || x->form.kind != Kind::element || !at::isFloatingType(x->form.dtype) || !sizes || !sizes->isIntList() ||
      !eps || !eps->isDouble())
    return false;
  const auto asked = sizes->toIntVector();
  std::vector<int64_t> dims;
  for (size_t i = 0; i < asked.size(); ++i) dims.push_back(x->form.rank - 1 - static_cast<int64_t>(i));
  const auto r = rows_over(l, *x, dims, true, false);
  if (!r || !std::equal(asked.rbegin(), asked.rend(), x->form.trailing.rbegin())) return false;
  const at::ScalarType dtype = wide(x->form.dtype);
  const Ref positions = count(l, *r, dtype);
  const Ref mean = l.map(dtype, "a / b", {sum_of(l, *r, x->value), positions});
  const Ref distance = l.map(dtype, "a - b", {x->value, mean});
  const auto epsilon = l.number(*eps, dtype);
  const Ref scale = l.map(dtype, "reciprocal(sqrt(a / b + c))", {sum_of_squares(l, *r, distance), positions, *epsilon});
  Ref result = l.map(dtype, "a * b", {distance, scale});
  const std::initializer_list<std::pair<size_t, const char*>> affine = {{2, "a * b"}, {3, "a + b"}};
  for (const auto& [argument, code] : affine) {
    if (l.is_none(argument)) continue;
    const graph::Value* given = l.tensor(argument);
    if (!given || !given->meta || wide(given->meta->dtype) != dtype) return false;
    const auto column = l.operand(argument, given->meta->dtype, x->form);
    if (!column) return false;
    result = l.map(dtype, code, {result, *column});
  }
  l.extents().at(r->segments < 0 ? x->form.extent : l.extents().at(x->form.extent).positions).fixed = true;
  const auto in_result = [&](size_t index, TensorForm form, Ref value) {
    const auto& seen = l.node().results[index]->meta;
    if (!seen) return false;
    form.dtype = seen->dtype;
    return l.result(index, form, value);
  };
  return in_result(0, x->form, result) &&
         (!native || (in_result(1, r->result, mean) && in_result(2, r->result, scale)));
}

}  // namespace

const LowerTable& reductions() {
  static const auto& table = *new LowerTable{
      {"aten::sum.dim_IntList", sum},
      {"aten::mean.dim", mean},
      {"aten::prod.dim_int", product},
      {"aten::amax", extreme_of_rows<true>},
      {"aten::amin", extreme_of_rows<false>},
      {"aten::any.dim", any},
      {"aten::all.dim", all},
      {"aten::std.dim", spread_unbiased<true>},
      {"aten::var.dim", spread_unbiased<false>},
      {"aten::std.correction", spread_corrected<true>},
      {"aten::var.correction", spread_corrected<false>},
      {"aten::softmax.int", softmax<false>},
      {"aten::_softmax", softmax<false>},
      {"aten::log_softmax.int", softmax<true>},
      {"aten::_log_softmax", softmax<true>},
      {"aten::_softmax_backward_data", softmax_backward<false>},
      {"aten::_log_softmax_backward_data", softmax_backward<true>},
      {"aten::argmax", arg_extreme<true>},
      {"aten::argmin", arg_extreme<false>},
      {"aten::max.dim", extreme_with_position<true>},
      {"aten::min.dim", extreme_with_position<false>},
      {"aten::layer_norm", layer_norm<false>},
      {"aten::native_layer_norm", layer_norm<true>},
      {"aten::norm.ScalarOpt_dim", [](Lowering& l) { return norm(l, 1, 2, 3); }},
      {"aten::linalg_vector_norm", [](Lowering& l) { return l.is_none(4) && norm(l, 1, 2, 3); }},
  };
  return table;
}

}  // namespace triage::fused
