// Reductions over everything but the batch, or over some dims of it, and what is made of them: softmax, standard deviations.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/backends/fused/lowering/lowering.h"

namespace triage::fused {
namespace {

using Kind = TensorForm::Kind;

struct Rows {
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
std::optional<Rows> rows_over(Lowering& l, const Lowered& x, const std::vector<int64_t>& dims, bool keepdim) {
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
    return Rows{x.value, x.form, l.row_form(seen->dtype, result.rank), -1};
  joined.flip();
  if (!l.split(x.form.extent, joined)) return std::nullopt;
  result.extent = l.extent(x.form).segments;
  return Rows{x.value, x.form, result, result.extent};
}

/// Argument 0 where it has elements, and argument `dim` names the dims of a row; `keepdim`: index of that argument.
std::optional<Rows> rows(Lowering& l, size_t dim, std::optional<size_t> keepdim) {
  const auto x = l.lowered(0);
  const auto* dims = l.constant(dim);
  const auto keep = keepdim ? l.flag(*keepdim) : std::optional(true);
  if (!x || !dims || !keep) return std::nullopt;
  return rows_over(l, *x, dims_of(*dims, x->form.rank), *keep);
}

bool is_real(at::ScalarType dtype) { return at::isFloatingType(dtype); }

/// The type in which ATen adds up values of this dtype.
std::string sum_type(at::ScalarType dtype) {
  if (dtype == at::kDouble) return "double";
  return is_real(dtype) ? "float" : "int64_t";
}

/// The dtype in which values are computed that are rounded at the end only.
at::ScalarType wide(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype; }

/// `rows`, and its elements in the dtype that argument `dtype` asks for, which ATen converts to first.
std::optional<Rows> rows_in(Lowering& l, size_t dim, size_t keepdim, size_t dtype) {
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

/// The sum of `code` over the rows of `element`, which lie as those of `r` do.
Ref sum_of(Lowering& l, const Rows& r, Ref element, at::ScalarType dtype, const std::string& code = "{0}") {
  const std::string type = sum_type(dtype);
  dtype = wide(dtype);
  // The sum of a row that a selection may have made 0 is the sum of the row, or 0: it need not wait for the selection.
  const LoopValue& value = l.value(element);
  if (code == "{0}" && value.code == row_selection && l.value(value.operands[0]).place == Place::row &&
      l.is_zero(value.operands[1]) && l.value(value.operands[2]).place == Place::element &&
      l.value(value.operands[2]).extent == value.extent) {
    const std::vector<Ref> parts = value.operands;
    return l.map(dtype, row_selection, {parts[0], parts[1], sum_of(l, r, parts[2], dtype)});
  }
  return l.reduce(is_real(dtype) ? dtype : at::kLong, type, "(" + type + ")(" + code + ")", "+", "0", element,
                  r.segments);
}

/// What came of a reduction, in the dtype of the result.
bool rounded_result(Lowering& l, const Rows& r, Ref value, const std::string& code = "{0}") {
  return l.result(0, r.result, l.map(r.result.dtype, code, {value}));
}

bool sum(Lowering& l) {
  const auto r = rows_in(l, 1, 2, 3);
  return r && rounded_result(l, *r, sum_of(l, *r, r->element, r->form.dtype));
}

bool mean(Lowering& l) {
  const auto r = rows_in(l, 1, 2, 3);
  if (!r || !is_real(r->form.dtype)) return false;
  Ref total = sum_of(l, *r, r->element, r->form.dtype);
  if (wide(r->form.dtype) != r->form.dtype)
    total = l.map(r->form.dtype, "{0}", {total});  // ATen divides the rounded sum
  return rounded_result(l, *r, total, "{0} / " + l.count(r->element, r->segments));
}

bool product(Lowering& l) {
  const auto r = rows_in(l, 1, 2, 3);
  if (!r) return false;
  const std::string type = sum_type(r->form.dtype);
  const at::ScalarType dtype = is_real(r->form.dtype) ? wide(r->form.dtype) : at::kLong;
  return rounded_result(l, *r, l.reduce(dtype, type, "(" + type + "){0}", "*", "1", r->element, r->segments));
}

/// The largest (smallest) value, NaN where there is one.
Ref extreme(Lowering& l, const Rows& r, Ref element, at::ScalarType dtype, bool largest) {
  const std::string type = computed_type(dtype);
  const std::string start = !is_real(dtype)    ? fmt::format("lowest_of<{}>({})", type, largest)
                            : type == "double" ? (largest ? "-__builtin_inf()" : "__builtin_inf()")
                                               : (largest ? "-__builtin_inff()" : "__builtin_inff()");
  const Ref found = l.reduce(wide(dtype), type, "{0}", largest ? "max" : "min", start, element, r.segments);
  if (!is_real(dtype)) return found;
  const Ref nan = l.reduce(at::kInt, "uint32_t", "is_nan({0})", "|", "0", element, r.segments);
  return l.map(wide(dtype), type == "double" ? "{1} ? __builtin_nan(\"\") : {0}" : "{1} ? __builtin_nanf(\"\") : {0}",
               {found, nan});
}

template <bool largest>
bool extreme_of_rows(Lowering& l) {
  const auto r = rows(l, 1, 2);
  if (!r || r->form.dtype == at::kBool) return false;
  return l.result(0, r->result, extreme(l, *r, r->element, r->form.dtype, largest));
}

template <bool all>
bool any_or_all(Lowering& l) {
  const auto r = rows(l, 1, 2);
  if (!r) return false;
  const bool plain = r->form.dtype == at::kBool;
  const char* code = all ? (plain ? "!{0}" : "{0} == 0") : (plain ? "{0}" : "{0} != 0");
  const Ref found = l.reduce(at::kInt, "uint32_t", code, "|", "0", r->element, r->segments);
  return rounded_result(l, *r, found, all ? "{0} == 0" : "{0} != 0");
}

/// The sum of squared distances from the mean over (count - correction), or its root.
bool spread(Lowering& l, const Rows& r, int64_t correction, bool root) {
  if (!is_real(r.form.dtype)) return false;
  const at::ScalarType dtype = wide(r.form.dtype);
  const std::string d = l.count(r.element, r.segments), type = computed_type(dtype);
  const Ref mean = l.map(dtype, "{0} / " + d, {sum_of(l, r, r.element, r.form.dtype)});
  const Ref distance = l.map(dtype, "{0} - {1}", {r.element, mean});
  const Ref squares = sum_of(l, r, distance, dtype, "{0} * {0}");
  const std::string variance = fmt::format("{{0}} / ({0})({1} > {2} ? {1} - {2} : 0)", type, d, correction);
  return rounded_result(l, r, squares, root ? "root(" + variance + ")" : variance);
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
std::optional<Rows> whole_rows(Lowering& l, size_t dim) {
  const auto r = rows(l, dim, {});
  return r && is_real(r->form.dtype) ? r : std::nullopt;
}

/// Argument 2 is the dtype to convert to first; of _softmax, whether halves become floats.
template <bool logarithmic>
bool softmax(Lowering& l) {
  const auto r = whole_rows(l, 1);
  if (!r) return false;
  TensorForm form = r->form;
  form.dtype = r->result.dtype;
  if (!is_real(form.dtype)) return false;
  const auto element = l.cast(r->element, r->form.dtype, form.dtype);
  if (!element) return false;
  const at::ScalarType dtype = wide(form.dtype);
  // The bare maximum: a NaN makes NaN of every position anyhow, by the sum.
  const std::string infinity = dtype == at::kDouble ? "-__builtin_inf()" : "-__builtin_inff()";
  const Ref largest = l.reduce(dtype, computed_type(dtype), "{0}", "max", infinity, *element, r->segments);
  const Ref shifted = l.map(dtype, "{0} - {1}", {*element, largest});
  const Ref power = l.map(dtype, "exponential({0})", {shifted}, true);
  const Ref total = sum_of(l, *r, power, dtype);
  if (logarithmic) {
    const Ref log = l.map(dtype, "logarithm({0})", {total}, true);
    return l.result(0, form, l.map(form.dtype, "{0} - {1}", {shifted, log}));
  }
  const Ref share = l.map(dtype, "1 / {0}", {total}, true);
  return l.result(0, form, l.map(form.dtype, "{0} * {1}", {power, share}));
}

/// The gradient of softmax: of what came out ({1}), and of what came in from behind ({0}).
template <bool logarithmic>
bool softmax_backward(Lowering& l) {
  const auto r = whole_rows(l, 2);
  if (!r || wide(r->form.dtype) != r->form.dtype) return false;
  const at::ScalarType dtype = r->form.dtype;
  const auto output = l.operand(1, dtype, r->form);
  if (!output || r->result.dtype != dtype) return false;
  if (logarithmic) {
    const Ref total = sum_of(l, *r, r->element, dtype), share = l.map(dtype, "exponential({0})", {*output}, true);
    return l.result(0, r->form, l.map(dtype, "{0} - {1} * {2}", {r->element, share, total}));
  }
  const Ref total = sum_of(l, *r, l.map(dtype, "{0} * {1}", {r->element, *output}), dtype);
  return l.result(0, r->form, l.map(dtype, "({0} - {2}) * {1}", {r->element, *output, total}));
}

/// The sum of magnitudes, their Euclidean norm, and the largest of them.
bool norm(Lowering& l, size_t order, size_t dim, size_t keepdim) {
  const auto r = rows(l, dim, keepdim);
  const auto* p = l.constant(order);
  if (!r || !p || !(p->isInt() || p->isDouble()) || !is_real(r->form.dtype) || r->result.dtype != r->form.dtype)
    return false;
  const double power = p->isInt() ? static_cast<double>(p->toInt()) : p->toDouble();
  const at::ScalarType dtype = wide(r->form.dtype);
  if (power == 2.0) return rounded_result(l, *r, sum_of(l, *r, r->element, dtype, "{0} * {0}"), "root({0})");
  const Ref magnitude = l.map(dtype, "magnitude_of({0})", {r->element});
  if (power == 1.0) return rounded_result(l, *r, sum_of(l, *r, magnitude, dtype));
  return std::isinf(power) && rounded_result(l, *r, extreme(l, *r, magnitude, dtype, power > 0));
}

/// Where the largest (smallest) value stands: the first of equal ones; a NaN before all numbers.
Ref position(Lowering& l, const Rows& r, Ref found) {
  const Ref here = l.map(at::kLong, "({0} == {1}) | (is_nan({0}) & is_nan({1})) ? i : INT64_MAX", {r.element, found});
  return l.reduce(at::kLong, "int64_t", "{0}", "min", "INT64_MAX", here, r.segments);
}

template <bool largest>
bool arg_extreme(Lowering& l) {
  const auto r = rows(l, 1, 2);
  if (!r || r->form.dtype == at::kBool) return false;
  return l.result(0, r->result, position(l, *r, extreme(l, *r, r->element, r->form.dtype, largest)));
}

/// max and min along a dim: the value, and where it stands.
template <bool largest>
bool extreme_with_position(Lowering& l) {
  const auto r = rows(l, 1, 2);
  if (!r || r->form.dtype == at::kBool) return false;
  const Ref found = extreme(l, *r, r->element, r->form.dtype, largest);
  TensorForm positions = r->result;
  positions.dtype = at::kLong;
  return l.result(0, r->result, found) && l.result(1, positions, position(l, *r, found));
}

/// layer_norm and native_layer_norm: x, the last sizes of it, weight, bias, eps. The latter gives mean and 1 / deviation too.
template <bool native>
bool layer_norm(Lowering& l) {
  const auto x = l.lowered(0);
  const auto *sizes = l.constant(1), *eps = l.constant(4);
  if (!x || x->form.kind != Kind::element || !is_real(x->form.dtype) || !sizes || !sizes->isIntList() || !eps ||
      !eps->isDouble())
    return false;
  const auto asked = sizes->toIntVector();
  std::vector<int64_t> dims;
  for (size_t i = 0; i < asked.size(); ++i) dims.push_back(x->form.rank - 1 - static_cast<int64_t>(i));
  const auto r = rows_over(l, *x, dims, true);
  if (!r || !std::equal(asked.rbegin(), asked.rend(), x->form.trailing.rbegin())) return false;
  const at::ScalarType dtype = wide(x->form.dtype);
  const std::string d = l.count(x->value, r->segments);
  const Ref mean = l.map(dtype, "{0} / " + d, {sum_of(l, *r, x->value, dtype)});
  const Ref distance = l.map(dtype, "{0} - {1}", {x->value, mean});
  const auto epsilon = l.number(*eps, dtype);
  const Ref squares = sum_of(l, *r, distance, dtype, "{0} * {0}");
  const Ref scale = l.map(dtype, "1 / root({0} / " + d + " + {1})", {squares, *epsilon}, true);
  Ref result = l.map(dtype, "{0} * {1}", {distance, scale});
  const std::initializer_list<std::pair<size_t, const char*>> affine = {{2, "{0} * {1}"}, {3, "{0} + {1}"}};
  for (const auto& [argument, code] : affine) {
    if (l.is_none(argument)) continue;
    const graph::Value* given = l.tensor(argument);
    if (!given || !given->meta || wide(given->meta->dtype) != dtype) return false;
    const auto column = l.operand(argument, given->meta->dtype, x->form);
    if (!column) return false;
    result = l.map(dtype, code, {result, *column});
  }
  l.fix_extent(r->segments < 0 ? x->form.extent : l.extent(x->form).positions);
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
  static const LowerTable table = {
      {"aten::sum.dim_IntList", sum},
      {"aten::mean.dim", mean},
      {"aten::prod.dim_int", product},
      {"aten::amax", extreme_of_rows<true>},
      {"aten::amin", extreme_of_rows<false>},
      {"aten::any.dim", any_or_all<false>},
      {"aten::all.dim", any_or_all<true>},
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
