#include "runtime/capture/rules.h"

#include <ATen/core/Tensor.h>
#include <triage/graph.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "runtime/capture/operator_traits.h"
#include "runtime/graph/dynamic_shape.h"
#include "runtime/graph/number_ops.h"

namespace triage::capture {
namespace {

using Names = std::unordered_set<std::string_view>;

}  // namespace

bool is_aten(const c10::OperatorHandle& op) { return op.operator_name().name.rfind("aten::", 0) == 0; }

std::string base_name(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  auto colon = name.rfind(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

std::string aten_name(const c10::OperatorHandle& op) { return is_aten(op) ? base_name(op) : ""; }

bool gives_dynamic_shape(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  return graph::gives_dynamic_shape(op, at::ArrayRef<const c10::IValue>(arguments.data(), arguments.size()));
}

bool judges_values(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  static const Names always = {"index",
                               "index_put",
                               "index_select",
                               "index_add",
                               "index_copy",
                               "index_fill",
                               "gather",
                               "scatter",
                               "scatter_add",
                               "scatter_reduce",
                               "take",
                               "take_along_dim",
                               "put",
                               "embedding",
                               "one_hot",
                               "bincount",
                               "repeat_interleave",
                               "embedding_bag",
                               "multinomial",
                               "bernoulli",
                               "binomial",
                               "poisson",
                               "normal",
                               "nll_loss",
                               "nll_loss_nd",
                               "cross_entropy_loss",
                               "ctc_loss",
                               "histc",
                               "binary_cross_entropy",
                               "multi_margin_loss",
                               "lu_solve",
                               "multilabel_margin_loss"};
  static const Names of_integers = {"div", "divide", "floor_divide", "remainder", "fmod", "pow"};
  std::string name = aten_name(op);
  if (!name.empty() && name.back() == '_') name.pop_back();
  if (always.count(name)) return true;
  if (!of_integers.count(name)) return false;
  return std::all_of(arguments.begin(), arguments.end(), [](const c10::IValue& argument) {
    return !argument.isTensor() || !argument.toTensor().defined() ||
           at::isIntegralType(argument.toTensor().scalar_type(), /*includeBool=*/true);
  });
}

bool never_differentiable(const c10::OperatorHandle& op) {
  static const Names names = {"eq",
                              "ne",
                              "lt",
                              "le",
                              "gt",
                              "ge",
                              "not_equal",
                              "less",
                              "less_equal",
                              "greater",
                              "greater_equal",
                              "isnan",
                              "isinf",
                              "isfinite",
                              "isposinf",
                              "isneginf",
                              "isclose",
                              "signbit",
                              "logical_and",
                              "logical_or",
                              "logical_xor",
                              "logical_not",
                              "any",
                              "all",
                              "argmax",
                              "argmin",
                              "argsort",
                              "count_nonzero",
                              "zeros_like",
                              "ones_like",
                              "full_like",
                              "empty_like"};
  return graph::is_number_op(op) || names.count(aten_name(op)) != 0;
}

std::optional<Refusal> refusal(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                               bool dynamic_shapes) {
  if (!dynamic_shapes && gives_dynamic_shape(op, arguments))
    return Refusal{Break::dynamic_shape, "`" + base_name(op) + "` gives a result whose shape depends on values",
                   "Keep all rows and select with torch.where, err.take_ok_p or err.map_ok; or set "
                   "triage.config.capture_dynamic_output_shape_ops."};
  for (const c10::IValue& argument : arguments)
    if (argument.isGenerator())
      return Refusal{Break::unsupported, "`" + base_name(op) + "` draws from its own generator",
                     "Draw from the default generator, which torch.manual_seed sets."};
  switch (traits_of(op).refused) {
    case OperatorTraits::Refused::writes_to_out:
      return Refusal{Break::unsupported, "`" + base_name(op) + "` writes its result into `out`",
                     "Use the form without `out`: it returns the result."};
    case OperatorTraits::Refused::reads_value:
      return Refusal{
          Break::reads_value, "`" + base_name(op) + "` reads a value of a tensor",
          "Keep it a tensor: compare and select with torch.where or IF, or read it after the compiled code."};
    case OperatorTraits::Refused::mixes_lists:
      return Refusal{Break::unsupported, "`" + base_name(op) + "` returns a list as one of several results",
                     "Call the operators that it consists of."};
    default:
      return std::nullopt;
  }
}

bool moves_data(const c10::OperatorHandle& op) {
  static const Names names = {"clone",  "alias",     "contiguous",   "detach",    "where",         "select",
                              "slice",  "index",     "index_select", "cat",       "concat",        "masked_fill",
                              "flip",   "roll",      "narrow",       "index_put", "slice_scatter", "select_scatter",
                              "expand", "expand_as", "repeat"};
  static const Names ours = {"triage::select", "triage::take_ok_p", "triage::take_err_p"};
  return names.count(aten_name(op)) || ours.count(op.operator_name().name);
}

}  // namespace triage::capture
