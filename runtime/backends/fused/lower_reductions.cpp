// Reductions over everything but the batch, and what is made of them: softmax, standard deviations.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "runtime/backends/fused/lowering.h"

namespace triage::fused {
namespace {

using Kind = TensorForm::Kind;

struct Rows {
  Ref element;
  TensorForm form;    // of the argument
  TensorForm result;  // one value a row
};

/// True where these dims of a tensor of `rank` dims are all but the first.
bool are_trailing(std::vector<int64_t> dims, int64_t rank) {
  for (auto& dim : dims) dim = dim < 0 ? dim + rank : dim;
  std::sort(dims.begin(), dims.end());
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != static_cast<int64_t>(i) + 1) return false;
  return static_cast<int64_t>(dims.size()) == rank - 1;
}

/// Argument 0 where it has elements, and argument `dim` names the dims of a row; `keepdim`: index of that argument.
std::optional<Rows> rows(Lowering& l, size_t dim, std::optional<size_t> keepdim) {
  const auto x = l.lowered(0);
  const auto* dims = l.constant(dim);
  if (!x || x->form.kind != Kind::element || !dims) return std::nullopt;
  std::vector<int64_t> list;
  if (dims->isInt()) list = {dims->toInt()};
  if (dims->isIntList()) list = dims->toIntVector();
  if (!are_trailing(list, x->form.rank)) return std::nullopt;
  const auto keep = keepdim ? l.flag(*keepdim) : std::optional(true);
  const auto& seen = l.node().results[0]->meta;
  if (!keep || !seen) return std::nullopt;
  return Rows{x->value, x->form, l.row_form(seen->dtype, *keep ? x->form.rank : 1)};
}

bool is_real(at::ScalarType dtype) { return at::isFloatingType(dtype); }

/// The type in which ATen adds up values of this dtype.
std::string sum_type(at::ScalarType dtype) {
  if (dtype == at::kDouble) return "double";
  return is_real(dtype) ? "float" : "int64_t";
}

Ref sum_of(Lowering& l, Ref element, at::ScalarType dtype, const std::string& code = "{0}") {
  const std::string type = sum_type(dtype);
  // The sum of a row that a selection may have made 0 is the sum of the row, or 0: it need not wait for the selection.
  const LoopValue& value = l.value(element);
  if (code == "{0}" && value.code == row_selection && l.value(value.operands[0]).place == Place::row &&
      l.is_zero(value.operands[1]) && l.value(value.operands[2]).place == Place::element) {
    const std::vector<Ref> parts = value.operands;
    return l.map(dtype, row_selection, {parts[0], parts[1], sum_of(l, parts[2], dtype)});
  }
  return l.reduce(is_real(dtype) ? dtype : at::kLong, type, "(" + type + ")(" + code + ")", "+", "0", element);
}

bool sum(Lowering& l) {
  const auto r = rows(l, 1, 2);
  if (!r || !l.is_none(3)) return false;
  const Ref total = sum_of(l, r->element, r->form.dtype);
  return l.result(0, r->result, l.map(r->result.dtype, "{0}", {total}));
}

bool mean(Lowering& l) {
  const auto r = rows(l, 1, 2);
  if (!r || !l.is_none(3) || !is_real(r->form.dtype)) return false;
  const Ref total = sum_of(l, r->element, r->form.dtype);
  return l.result(0, r->result, l.map(r->result.dtype, "{0} / " + l.count(r->element), {total}));
}

/// The largest (smallest) value, NaN where there is one.
Ref extreme(Lowering& l, Ref element, at::ScalarType dtype, bool largest) {
  const std::string type = computed_type(dtype);
  const std::string start = !is_real(dtype)    ? fmt::format("lowest_of<{}>({})", type, largest)
                            : type == "double" ? (largest ? "-__builtin_inf()" : "__builtin_inf()")
                                               : (largest ? "-__builtin_inff()" : "__builtin_inff()");
  const Ref found = l.reduce(dtype, type, "{0}", largest ? "max" : "min", start, element);
  if (!is_real(dtype)) return found;
  const Ref nan = l.reduce(at::kInt, "uint32_t", "is_nan({0})", "|", "0", element);
  return l.map(dtype, type == "double" ? "{1} ? __builtin_nan(\"\") : {0}" : "{1} ? __builtin_nanf(\"\") : {0}",
               {found, nan});
}

template <bool largest>
bool extreme_of_rows(Lowering& l) {
  const auto r = rows(l, 1, 2);
  if (!r || r->form.dtype == at::kBool) return false;
  return l.result(0, r->result, extreme(l, r->element, r->form.dtype, largest));
}

template <bool all>
bool any_or_all(Lowering& l) {
  const auto r = rows(l, 1, 2);
  if (!r || r->form.dtype != at::kBool) return false;
  const Ref found = l.reduce(at::kInt, "uint32_t", all ? "!{0}" : "{0}", "|", "0", r->element);
  return l.result(0, r->result, l.map(at::kBool, all ? "{0} == 0" : "{0} != 0", {found}));
}

/// The sum of squared distances from the mean over (count - correction), or its root.
bool spread(Lowering& l, const Rows& r, int64_t correction, bool root) {
  if (!is_real(r.form.dtype)) return false;
  const at::ScalarType wide =
      r.form.dtype == at::kDouble ? at::kDouble : at::kFloat;  // halves are rounded at the end only
  const std::string d = l.count(r.element), type = computed_type(wide);
  const Ref mean = l.map(wide, "{0} / " + d, {sum_of(l, r.element, r.form.dtype)});
  const Ref distance = l.map(wide, "{0} - {1}", {r.element, mean});
  const Ref squares = sum_of(l, distance, wide, "{0} * {0}");
  const std::string variance = fmt::format("{{0}} / ({0})({1} > {2} ? {1} - {2} : 0)", type, d, correction);
  return l.result(0, r.result, l.map(r.result.dtype, root ? "root(" + variance + ")" : variance, {squares}));
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

template <bool logarithmic>
bool softmax(Lowering& l) {
  const auto r = rows(l, 1, {});
  const bool plain = l.is_none(2) || l.flag(2) == false;  // no dtype; for _softmax: not half to float
  if (!r || !plain || (r->form.dtype != at::kFloat && r->form.dtype != at::kDouble)) return false;
  const at::ScalarType dtype = r->form.dtype;
  // The bare maximum: a NaN makes NaN of every position anyhow, by the sum.
  const std::string infinity = dtype == at::kDouble ? "-__builtin_inf()" : "-__builtin_inff()";
  const Ref largest = l.reduce(dtype, computed_type(dtype), "{0}", "max", infinity, r->element);
  const Ref shifted = l.map(dtype, "{0} - {1}", {r->element, largest});
  const Ref power = l.map(dtype, "exponential({0})", {shifted}, true);
  const Ref total = sum_of(l, power, dtype);
  if (logarithmic) {
    const Ref log = l.map(dtype, "logarithm({0})", {total}, true);
    return l.result(0, r->form, l.map(dtype, "{0} - {1}", {shifted, log}));
  }
  const Ref share = l.map(dtype, "1 / {0}", {total}, true);
  return l.result(0, r->form, l.map(dtype, "{0} * {1}", {power, share}));
}

/// The gradient of softmax: of what came out ({1}), and of what came in from behind ({0}).
template <bool logarithmic>
bool softmax_backward(Lowering& l) {
  const auto r = rows(l, 2, {});
  if (!r || (r->form.dtype != at::kFloat && r->form.dtype != at::kDouble)) return false;
  const at::ScalarType dtype = r->form.dtype;
  const auto output = l.operand(1, dtype, r->form);
  if (!output || r->result.dtype != dtype) return false;
  if (logarithmic) {
    const Ref total = sum_of(l, r->element, dtype), share = l.map(dtype, "exponential({0})", {*output}, true);
    return l.result(0, r->form, l.map(dtype, "{0} - {1} * {2}", {r->element, share, total}));
  }
  const Ref total = sum_of(l, l.map(dtype, "{0} * {1}", {r->element, *output}), dtype);
  return l.result(0, r->form, l.map(dtype, "({0} - {2}) * {1}", {r->element, *output, total}));
}

/// The sum of magnitudes, their Euclidean norm, and the largest of them.
bool norm(Lowering& l, size_t order, size_t dim, size_t keepdim) {
  const auto r = rows(l, dim, keepdim);
  const auto* p = l.constant(order);
  if (!r || !p || !(p->isInt() || p->isDouble()) || (r->form.dtype != at::kFloat && r->form.dtype != at::kDouble))
    return false;
  const double power = p->isInt() ? static_cast<double>(p->toInt()) : p->toDouble();
  const at::ScalarType dtype = r->form.dtype;
  if (power == 2.0)
    return l.result(0, r->result, l.map(dtype, "root({0})", {sum_of(l, r->element, dtype, "{0} * {0}")}));
  const Ref magnitude = l.map(dtype, "magnitude_of({0})", {r->element});
  if (power == 1.0) return l.result(0, r->result, sum_of(l, magnitude, dtype));
  return std::isinf(power) && l.result(0, r->result, extreme(l, magnitude, dtype, power > 0));
}

/// Where the largest (smallest) value stands: the first of equal ones; a NaN before all numbers.
Ref position(Lowering& l, Ref element, Ref found) {
  return l.reduce(at::kLong, "int64_t", "{0}", "min", "INT64_MAX",
                  l.map(at::kLong, "({0} == {1}) | (is_nan({0}) & is_nan({1})) ? i : INT64_MAX", {element, found}));
}

template <bool largest>
bool arg_extreme(Lowering& l) {
  const auto r = rows(l, 1, 2);
  if (!r || r->form.dtype == at::kBool) return false;
  return l.result(0, r->result, position(l, r->element, extreme(l, r->element, r->form.dtype, largest)));
}

/// max and min along a dim: the value, and where it stands.
template <bool largest>
bool extreme_with_position(Lowering& l) {
  const auto r = rows(l, 1, 2);
  if (!r || r->form.dtype == at::kBool) return false;
  const Ref found = extreme(l, r->element, r->form.dtype, largest);
  return l.result(0, r->result, found) &&
         l.result(1, l.row_form(at::kLong, r->result.rank), position(l, r->element, found));
}

/// layer_norm and native_layer_norm: x, sizes of a row, weight, bias, eps. The latter gives mean and 1 / deviation too.
template <bool native>
bool layer_norm(Lowering& l) {
  const auto x = l.lowered(0);
  const auto* sizes = l.constant(1);
  const auto* eps = l.constant(4);
  if (!x || x->form.kind != Kind::element || !sizes || !sizes->isIntList() || !eps || !eps->isDouble() ||
      sizes->toIntVector() != x->form.trailing || (x->form.dtype != at::kFloat && x->form.dtype != at::kDouble))
    return false;
  const at::ScalarType dtype = x->form.dtype;
  const std::string d = l.count(x->value);
  const Ref mean = l.map(dtype, "{0} / " + d, {sum_of(l, x->value, dtype)});
  const Ref distance = l.map(dtype, "{0} - {1}", {x->value, mean});
  const auto epsilon = l.number(*eps, dtype);
  const Ref squares = sum_of(l, distance, dtype, "{0} * {0}");
  const Ref scale = l.map(dtype, "1 / root({0} / " + d + " + {1})", {squares, *epsilon}, true);
  Ref result = l.map(dtype, "{0} * {1}", {distance, scale});
  const std::initializer_list<std::pair<size_t, const char*>> affine = {{2, "{0} * {1}"}, {3, "{0} + {1}"}};
  for (const auto& [argument, code] : affine) {
    if (l.is_none(argument)) continue;
    const auto column = l.operand(argument, dtype, x->form);
    if (!column) return false;
    result = l.map(dtype, code, {result, *column});
  }
  l.fix_extent(x->form);
  const TensorForm row = l.row_form(dtype, x->form.rank);
  return l.result(0, x->form, result) && (!native || (l.result(1, row, mean) && l.result(2, row, scale)));
}

}  // namespace

const LowerTable& reductions() {
  static const LowerTable table = {
      {"aten::sum.dim_IntList", sum},
      {"aten::mean.dim", mean},
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
