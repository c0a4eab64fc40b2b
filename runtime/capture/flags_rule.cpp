#include "runtime/capture/flags_rule.h"

#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/capture/rules.h"

namespace triage::capture {
namespace {

using Names = std::unordered_set<std::string_view>;

/// The results hold the words of the arguments, in the same dtype or not at all (the recorder compares).
const Names kMoves = {"adjoint",
                      "alias",
                      "as_strided",
                      "atleast_1d",
                      "atleast_2d",
                      "atleast_3d",
                      "broadcast_to",
                      "cat",
                      "chunk",
                      "clone",
                      "column_stack",
                      "concat",
                      "constant_pad_nd",
                      "contiguous",
                      "copy",
                      "detach",
                      "diagonal",
                      "dsplit",
                      "dstack",
                      "expand",
                      "expand_as",
                      "fill",
                      "flatten",
                      "flip",
                      "fliplr",
                      "flipud",
                      "gather",
                      "hsplit",
                      "hstack",
                      "index",
                      "index_copy",
                      "index_fill",
                      "index_put",
                      "index_select",
                      "lift_fresh",
                      "masked_fill",
                      "masked_scatter",
                      "masked_select",
                      "moveaxis",
                      "movedim",
                      "narrow",
                      "narrow_copy",
                      "pad",
                      "permute",
                      "pin_memory",
                      "put",
                      "ravel",
                      "repeat",
                      "repeat_interleave",
                      "reshape",
                      "reshape_as",
                      "roll",
                      "rot90",
                      "row_stack",
                      "scatter",
                      "select",
                      "select_scatter",
                      "slice",
                      "slice_scatter",
                      "split",
                      "split_with_sizes",
                      "squeeze",
                      "stack",
                      "swapaxes",
                      "swapdims",
                      "t",
                      "take",
                      "take_along_dim",
                      "tensor_split",
                      "tile",
                      "to",
                      "_to_copy",
                      "transpose",
                      "type_as",
                      "unbind",
                      "unflatten",
                      "unfold",
                      "unsafe_chunk",
                      "unsafe_split",
                      "unsafe_split_with_sizes",
                      "unsqueeze",
                      "view",
                      "view_as",
                      "_unsafe_view",
                      "vsplit",
                      "vstack",
                      "where",
                      "zero",
                      "_reshape_alias",
                      "broadcast_tensors",
                      "meshgrid",
                      "cartesian_prod",
                      "block_diag"};
/// The results are answers, or tensors of that form.
const Names kAsks = {"eq",
                     "ne",
                     "not_equal",
                     "lt",
                     "less",
                     "le",
                     "less_equal",
                     "gt",
                     "greater",
                     "ge",
                     "greater_equal",
                     "equal",
                     "any",
                     "all",
                     "nonzero",
                     "nonzero_numpy",
                     "argwhere",
                     "count_nonzero",
                     "isin",
                     "allclose",
                     "isclose",
                     "zeros_like",
                     "ones_like",
                     "full_like",
                     "empty_like",
                     "rand_like",
                     "randn_like",
                     "randint_like",
                     "new_zeros",
                     "new_ones",
                     "new_full",
                     "new_empty",
                     "new_empty_strided",
                     "size",
                     "stride",
                     "numel",
                     "dim",
                     "item",
                     "_local_scalar_dense",
                     "is_nonzero",
                     "is_same_size",
                     "isnan",
                     "isinf",
                     "isfinite",
                     "isposinf",
                     "isneginf",
                     "resolve_conj",
                     "resolve_neg",
                     "is_floating_point",
                     "is_complex",
                     "is_signed",
                     "requires_grad",
                     "record_stream",
                     "_assert_async"};
/// Arguments that say which words are moved.
const Names kChoosers = {"flags", "index", "indices", "condition", "cond", "mask", "repeats"};
/// Of these operators the first argument gives the form alone, all its words are written over; of those, the second.
const Names kFormOfFirst = {"fill", "zero", "copy"};
const Names kFormOfSecond = {"expand_as", "reshape_as", "type_as", "view_as"};

std::string functional_name(const c10::OperatorHandle& op) {
  std::string name = base_name(op);
  if (name.size() > 1 && name.back() == '_') name.pop_back();
  return name;
}

void add_values(const graph::Operand& operand, std::vector<const graph::Value*>& values) {
  if (const graph::Value* value = operand.value()) values.push_back(value);
  if (const auto* items = operand.list())
    for (const graph::Operand& item : *items) add_values(item, values);
}

bool is_mask(const graph::Value& value) { return value.meta && value.meta->dtype == at::kBool; }

}  // namespace

bool gives_words(const c10::OperatorHandle& op, size_t argument) {
  if (kChoosers.count(op.schema().arguments()[argument].name())) return false;
  if (argument > 1 || !is_aten(op)) return true;
  return !(argument == 0 ? kFormOfFirst : kFormOfSecond).count(functional_name(op));
}

std::vector<const graph::Value*> words_given_to(const graph::Node& node) {
  std::vector<const graph::Value*> values;
  for (size_t i = 0; i < node.operands.size(); ++i)
    if (gives_words(node.op, i)) add_values(node.operands[i], values);
  return values;
}

bool moves_words(const c10::OperatorHandle& op) {
  return moves_data(op) || (is_aten(op) && kMoves.count(functional_name(op)));
}

bool may_take_flags(const c10::OperatorHandle& op) {
  return !is_aten(op) || moves_words(op) || kAsks.count(functional_name(op));
}

namespace {

using Values = std::unordered_set<const graph::Value*>;

/// Whether the words of a value are those of flags, or were told to be flags: it was looked at then where they come from.
bool is_origin_of_flags(const graph::Value& value) {
  if (!value.is_flags) return false;
  return !value.producer || !moves_words(value.producer->op);
}

/// Visits the value and what its words were moved out of, until `visit` says that it is found: returns that. Where nothing is
/// found, all of them are `without`. A mask holds no words.
template <typename Visit>
const graph::Value* find_source(const graph::Value& value, Values& without, const Visit& visit) {
  std::vector<const graph::Value*> left = {&value};
  Values seen;
  while (!left.empty()) {
    const graph::Value* next = left.back();
    left.pop_back();
    if (without.count(next) || is_mask(*next)) continue;
    if (visit(*next)) return next;
    if (!seen.insert(next).second || is_origin_of_flags(*next)) continue;
    if (!next->producer || !moves_words(next->producer->op)) continue;
    for (const graph::Value* source : words_given_to(*next->producer)) left.push_back(source);
  }
  without.merge(seen);
  return nullptr;
}

bool converts(const graph::Node& node, const graph::Value& result) {
  const auto values = words_given_to(node);
  return values.size() == 1 && values[0]->meta && result.meta && values[0]->meta->dtype != result.meta->dtype;
}

}  // namespace

bool WordOrigins::holds_flags(const graph::Value& value) {
  return find_source(value, without_flags_, [](const graph::Value& source) { return source.is_flags; });
}

void WordOrigins::set_flags(graph::MutableValue& value) {
  if (!std::exchange(value.is_flags, true)) without_flags_.clear();
}

const graph::Node* WordOrigins::arithmetic_behind(const graph::Value& value) {
  const graph::Value* found = find_source(value, without_arithmetic_, [](const graph::Value& source) {
    const graph::Node* node = source.producer;
    if (!node || source.is_flags || !is_aten(node->op)) return false;
    if (moves_words(node->op)) return converts(*node, source);
    std::vector<const graph::Value*> values;
    for (const graph::Operand& operand : node->operands) add_values(operand, values);
    return !values.empty() && !may_take_flags(node->op);  // one that takes no tensor makes new words
  });
  return found ? found->producer : nullptr;
}

}  // namespace triage::capture
