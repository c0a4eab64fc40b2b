#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "runtime/backends/aot/joint.h"
#include "runtime/backends/aot/taint.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/passes/aliases.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/operators/semantics.h"

// For every gradient the pass knows, where it can, a mask of what is dead in it: exactly 0 because a selection over
// rows made it so. A mask is a bool value of the gradient's rank that broadcasts to it: along the rows it has their
// number, else 1. Where a view moves the rows, the mask moves along.

namespace triage::aot {
namespace {

using graph::Graph;
using graph::Node;
using graph::Operand;
using graph::TensorMeta;
using graph::Value;
using operators::Semantics;
using operators::semantics_of;
using Rule = operators::MaskedRows;
using Sizes = std::vector<int64_t>;

const Sizes& sizes_of(const Value* value) { return value->meta->sizes; }

int64_t product(const Sizes& sizes, size_t count) {
  int64_t result = 1;
  for (size_t i = 0; i < count; ++i) result *= sizes[i];
  return result;
}

bool is(const Node& node, const char* name) { return node.op.operator_name().name == name; }

int64_t size_at(const Value* value, int64_t dim) { return sizes_of(value)[static_cast<size_t>(dim)]; }

/// The constant dim that is argument `index`, counted from the front of `value`.
int64_t dim_of(const Node& call, size_t index, const Value* value) {
  const int64_t dim = call.operands[index].constant()->toInt();
  return dim < 0 ? dim + static_cast<int64_t>(sizes_of(value).size()) : dim;
}

/// The argument whose values the result has; nothing where it has others.
std::optional<size_t> source_of_values(const Node& node) {
  if (is(node, "aten::fill")) return 1;
  switch (semantics_of(node.op).masked_rows) {
    case Rule::kept:
    case Rule::expanded:
    case Rule::reshaped:
      return 0;
    default:
      return is(node, "aten::scalar_tensor") ? std::optional<size_t>(0) : std::nullopt;
  }
}

bool names_rows(const Node& call) {
  const auto& arguments = call.op.schema().arguments();
  const auto rank = static_cast<int64_t>(sizes_of(call.results[0]).size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue* dim = call.operands[i].constant();
    const bool other = dim && dim->isInt() && dim->toInt() != 0 && dim->toInt() != -rank;
    if (arguments[i].name().rfind("dim", 0) == 0 && !other) return true;
  }
  return false;
}

/// An operator of a gradient formula, which is 0 where the gradient is, that keeps rows apart.
bool is_gradient_of_rows(const Node& call) {
  return call.op.operator_name().name.ends_with("_backward") && !sums_losses(call) && !names_rows(call) &&
         semantics_of(call.op).has(Semantics::keeps_rows);
}

/// Adds calls to the graph that compute masks.
class MaskValues {
 protected:
  explicit MaskValues(Graph& graph) : graph_(graph) {}

  Value* emit(const char* name, const char* overload, std::vector<Operand> operands) {
    return emit(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload), std::move(operands));
  }

  /// A call of one result. Its type is found by calling it on zeros of the operands' sizes.
  Value* emit(const c10::OperatorHandle& op, std::vector<Operand> operands) {
    Node* node = graph_.append(op, std::move(operands), 1, source_);
    const auto zeros = [](const Value* value) {
      return at::zeros(value->meta->sizes, at::TensorOptions(value->meta->dtype).device(value->meta->device));
    };
    const at::Tensor result = graph::evaluate(*node, zeros).at(0);
    graph_.edit(node->results[0]).meta = TensorMeta{result.scalar_type(), result.sizes().vec(), result.device()};
    return node->results[0];
  }

  Value* reshaped(Value* mask, const Sizes& sizes) {
    return sizes_of(mask) == sizes ? mask : emit("aten::reshape", "", {mask, Operand(c10::IValue(sizes))});
  }
  Value* opposite(Value* mask) { return emit("aten::logical_not", "", {mask}); }
  Value* either(Value* a, Value* b) { return a == b ? a : emit("aten::logical_or", "", {a, b}); }
  Value* both(Value* a, Value* b) { return a == b ? a : emit("aten::logical_and", "", {a, b}); }
  Value* transposed(Value* mask) {
    if (mask->producer && is(*mask->producer, "aten::t")) return mask->producer->operands[0].value();
    return emit("aten::transpose", "int", {mask, c10::IValue(int64_t{-2}), c10::IValue(int64_t{-1})});
  }
  Value* none_of(Value* counts) { return emit("aten::le", "Scalar", {counts, c10::IValue(int64_t{0})}); }
  Value* counted(Value* mask) { return emit("aten::mul", "Scalar", {opposite(mask), c10::IValue(int64_t{1})}); }
  /// On the device of `beside`.
  Value* filled(const Sizes& sizes, at::ScalarType dtype, const char* with, const Value* beside) {
    return emit(with, "",
                {c10::IValue(sizes), c10::IValue(static_cast<int64_t>(dtype)), c10::IValue(),
                 c10::IValue(beside->meta->device), c10::IValue()});
  }

  Graph& graph_;
  Source source_;  // of the calls that are added
};

class MaskedRows : MaskValues {
 public:
  explicit MaskedRows(Joint& joint) : MaskValues(joint.graph), row_masks_(joint.row_masks) {
    const auto& inputs = graph_.inputs();
    for (size_t i = joint.num_primals; i < inputs.size(); ++i) of_tangents_.insert(inputs[i].value);
  }

  void run() {
    std::vector<graph::NodePtr> nodes;
    nodes.swap(graph_.nodes());
    for (auto& node : nodes) {
      bool backward = false;
      graph::for_each_use(*node, [&](Value*& value) {
        if (auto found = replacements_.find(value); found != replacements_.end()) value = found->second;
        backward |= of_tangents_.count(value) != 0;
      });
      if (!backward) {
        graph_.nodes().push_back(std::move(node));
        continue;
      }
      of_tangents_.insert(node->results.begin(), node->results.end());
      visit(std::move(node));
    }
    for (Value*& output : graph_.outputs())
      if (auto found = replacements_.find(output); found != replacements_.end()) output = found->second;
    std::unordered_set<const Value*> masked;  // contiguous, whatever the order of dims was before
    for (const auto& [what, value] : cleared_) masked.insert(value);
    graph::reshape_what_follows(graph_, masked);
    graph::eliminate_dead(graph_);
    graph::verify(graph_);
  }

 private:
  Value* dead(const Operand& operand) const {
    auto found = operand.value() ? dead_.find(operand.value()) : dead_.end();
    return found == dead_.end() ? nullptr : found->second;
  }

  /// `value` with its dead elements made 0.
  Value* cleared(Value* value, Value* mask) {
    Value*& known = cleared_[{value, mask}];
    if (!known) {
      known = emit("aten::masked_fill", "Scalar", {value, mask, c10::IValue(int64_t{0})});
      if (of_tangents_.count(value)) of_tangents_.insert(known);
    }
    return known;
  }

  bool is_zero(const Operand& operand) {
    std::vector<const Value*> followed;
    const Operand* next = &operand;
    bool answer = false;
    while (const Value* value = next->value()) {
      if (const auto known = zeros_.find(value); known != zeros_.end()) {
        answer = known->second;
        break;
      }
      followed.push_back(value);
      if (!value->producer) {
        const at::Tensor* tensor = graph_.constant_of(value);
        answer = tensor && !graph_.is_variable(value) && tensor->numel() == 1 && tensor->eq(0).all().item<bool>();
        break;
      }
      answer = semantics_of(value->producer->op).has(Semantics::zeros);
      const auto source = source_of_values(*value->producer);
      if (answer || !source) break;
      next = &value->producer->operands[*source];
    }
    if (const c10::IValue* constant = next->constant())
      answer = (constant->isInt() && constant->toInt() == 0) || (constant->isDouble() && constant->toDouble() == 0);
    for (const Value* value : followed) zeros_[value] = answer;
    return answer;
  }

  /// A condition over the rows of `like`: shape (N, 1, ..., 1), of the same rank.
  Value* row_mask(const Operand& operand, const Value* like) const {
    Value* mask = operand.value();
    if (!mask || !mask->meta || mask->meta->dtype != at::kBool || sizes_of(like).empty()) return nullptr;
    if (mask->producer && is(*mask->producer, "aten::expand") && sizes_of(mask) == sizes_of(like))
      mask = mask->producer->operands[0].value();
    Sizes rows(sizes_of(like).size(), 1);
    rows[0] = sizes_of(like)[0];
    return mask && mask->meta && sizes_of(mask) == rows ? mask : nullptr;
  }

  void visit(graph::NodePtr node) {
    Node& call = *node;
    source_ = call.source;
    bool empty = false;
    for (const Value* result : call.results)  // one without meta is undefined: nobody asked for it
      empty |= result->meta && product(sizes_of(result), sizes_of(result).size()) == 0;
    if (empty) return keep(std::move(node));
    const Rule rule = semantics_of(call.op).masked_rows;
    if (rule == Rule::product) return visit_product(std::move(node));
    if (rule == Rule::convolution_backward) return visit_convolution(std::move(node));
    if (rule == Rule::layer_norm_backward) return visit_norm(std::move(node));
    keep(std::move(node));
    if (rule == Rule::parts) return visit_parts(call);
    Value* result = call.results.size() == 1 ? call.results[0] : nullptr;
    if (!result || !result->meta || call.operands.empty()) return;
    visit(call, rule, result);
  }

  /// One whose masks come of several arguments, or of others than the first.
  void visit(const Node& call, Rule rule, Value* result) {
    switch (rule) {
      case Rule::where:
        return note_selected(call, 0, result, dead_of_where(call));
      case Rule::masked_fill:
        return note_selected(call, 1, result, dead_of_masked_fill(call));
      case Rule::sum_of_two:
        return note(result, dead_of_sum(call));
      case Rule::factors:
        return visit_factors(call, result);
      case Rule::joined:
      case Rule::stacked:
        return note(result, dead_of_joined(call, rule == Rule::stacked));
      case Rule::scattered:  // the row itself may say where its gradient goes
        return clear(result, dead_of_scattered(call, false));
      case Rule::scattered_rows:
        return note(result, dead_of_scattered(call, true));
      case Rule::index_put:
        return note(result, dead_of_index_put(call));
      default:
        if (Value* mask = dead(call.operands[0])) visit(call, rule, result, mask);
    }
  }

  /// One whose first argument has `mask`.
  void visit(const Node& call, Rule rule, Value* result, Value* mask) {
    switch (rule) {
      case Rule::kept:
      case Rule::expanded:
        return note(result, mask);
      case Rule::moved:
        return note(result, moved(call, mask));
      case Rule::reshaped:
        return note(result, dead_of_reshape(call.operands[0].value(), mask, sizes_of(result)));
      case Rule::taken:
        return note(result, taken(call, mask));
      case Rule::selected:
        return note(result, selected(mask, dim_of(call, 1, mask), call.operands[2]));
      case Rule::turned:
        return note(result, dead_of_turned(call, mask));
      case Rule::cumulated:
        return note(result, dead_of_cumsum(call, mask));
      case Rule::padded:
        return note(result, dead_of_padded(call, mask));
      case Rule::slice_backward:
        return note(result, dead_of_slice_backward(call, mask));
      case Rule::select_backward:
        return note(result, emit("aten::unsqueeze", "", {mask, c10::IValue(dim_of(call, 2, result))}));
      case Rule::glu_backward:
        if (size_at(mask, dim_of(call, 2, mask)) == 1) clear(result, mask);
        return;
      case Rule::reduced:
        return note(result, dead_of_reduction(call, mask));
      case Rule::elementwise_backward:
        if (!sums_losses(call)) clear(result, mask);
        return;
      case Rule::softmax_backward:
        return visit_softmax(call, result, mask);
      default:
        if (is_gradient_of_rows(call)) clear(result, of_rows(mask, result));
        if (overwrites_with_zeros(call)) note(result, mask);
    }
  }

  bool overwrites_with_zeros(const Node& call) {
    return (is(call, "aten::select_scatter") || is(call, "aten::slice_scatter")) && is_zero(call.operands[1]);
  }

  /// A mask of whole rows as one of the rows of `value`; null where it is one of parts of rows.
  Value* of_rows(Value* mask, const Value* value) {
    if (!value->meta || sizes_of(value).empty() || sizes_of(mask).empty() ||
        product(sizes_of(mask), sizes_of(mask).size()) != sizes_of(mask)[0])
      return nullptr;
    Sizes rows(sizes_of(value).size(), 1);
    rows[0] = sizes_of(mask)[0];
    return reshaped(mask, rows);
  }

  void keep(graph::NodePtr node) { graph_.nodes().push_back(std::move(node)); }

  /// A mask that does not broadcast to the value is not used: the value is then left alone.
  Value* fitted(const Value* value, Value* mask) {
    if (!mask || !value->meta || !(mask = aligned(mask, sizes_of(value).size()))) return nullptr;
    for (size_t i = 0; i < sizes_of(mask).size(); ++i)
      if (sizes_of(mask)[i] != 1 && sizes_of(mask)[i] != sizes_of(value)[i]) return nullptr;
    return mask;
  }

  void note(Value* value, Value* mask) {
    if ((mask = fitted(value, mask))) dead_[value] = mask;
  }

  /// From here on everybody uses `value` with its dead elements made 0.
  void clear(Value* value, Value* mask) {
    if (!(mask = fitted(value, mask))) return;
    Value* clean = cleared(value, mask);
    replacements_[value] = clean;
    dead_[clean] = mask;
  }

  /// Masks are values of their own: the dimensions move in the same way.
  Value* moved(const Node& call, Value* mask) {
    std::vector<Operand> operands = call.operands;
    operands[0] = mask;
    return emit(call.op, std::move(operands));
  }

  Value* aligned(Value* mask, size_t rank) {
    Sizes sizes = sizes_of(mask);
    if (sizes.size() > rank) return nullptr;
    sizes.insert(sizes.begin(), rank - sizes.size(), 1);
    return reshaped(mask, sizes);
  }

  /// By elements, the row itself may say which are taken: then whoever looks at the graph sees by the mask that none
  /// is.
  void note_selected(const Node& call, size_t condition, Value* result, Value* mask) {
    row_mask(call.operands[condition], result) ? note(result, mask) : clear(result, mask);
  }

  Value* dead_of_where(const Node& call) {
    const Operand &chosen = call.operands[1], &other = call.operands[2];
    const Value* result = call.results[0];
    Value* mask = row_mask(call.operands[0], result);
    if (mask && (is_zero(other) || is_zero(chosen))) row_masks_.emplace_back(mask, !is_zero(other));
    if (is_zero(other)) {
      Value* before = dead(chosen);
      if (!mask) return before;
      Value* now = opposite(mask);
      return before ? either(now, before) : now;
    }
    if (is_zero(chosen)) {
      Value* before = dead(other);
      if (!mask) return before;
      return before ? either(mask, before) : mask;
    }
    Value *a = dead(chosen), *b = dead(other);
    return a && b ? both(a, b) : nullptr;
  }

  Value* dead_of_masked_fill(const Node& call) {
    if (!is_zero(call.operands[2])) return nullptr;
    Value *before = dead(call.operands[0]), *mask = row_mask(call.operands[1], call.results[0]);
    if (mask) row_masks_.emplace_back(mask, true);
    if (!mask || !before) return mask ? mask : before;
    return either(mask, before);
  }

  Value* dead_of_sum(const Node& call) {
    Value *a = dead(call.operands[0]), *b = dead(call.operands[1]);
    if (a && b) return both(a, b);
    if (a && is_zero(call.operands[1])) return a;
    return b && is_zero(call.operands[0]) ? b : nullptr;
  }

  /// A product with another tensor can be NaN where the gradient is 0; with a number it is 0.
  void visit_factors(const Node& call, Value* result) {
    Value* mask = dead(call.operands[0]);
    const bool first = mask != nullptr;
    if (!first && is(call, "aten::mul")) mask = dead(call.operands[1]);
    if (!mask) return;
    call.operands[first ? 1 : 0].value() ? clear(result, mask) : note(result, mask);
  }

  void visit_softmax(const Node& call, Value* result, Value* mask) {
    const auto rank = static_cast<int64_t>(sizes_of(result).size());
    const int64_t dim = call.operands[2].constant()->toInt();
    if (sizes_of(mask)[static_cast<size_t>(dim < 0 ? dim + rank : dim)] == 1) clear(result, mask);
  }

  /// Leading dimensions that are merged or split: the mask's rows are all among them.
  Value* dead_of_reshape(const Value* value, Value* mask, const Sizes& to) {
    const Sizes& from = sizes_of(value);
    size_t first = from.size();
    while (first > 0 && sizes_of(mask)[first - 1] == 1) --first;
    if (first == 0) return reshaped(mask, Sizes(to.size(), 1));
    for (; first <= from.size(); ++first) {
      for (size_t count = 1; count <= to.size(); ++count) {
        if (product(from, first) != product(to, count)) continue;
        Sizes rows(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(first)), merged(to.size(), 1);
        rows.resize(from.size(), 1);
        std::copy_n(to.begin(), count, merged.begin());
        Value* full = sizes_of(mask) == rows
                          ? mask
                          : emit("aten::expand", "", {mask, Operand(c10::IValue(rows)), c10::IValue(false)});
        return reshaped(full, merged);
      }
    }
    return nullptr;
  }

  /// A sum over other dimensions than the rows leaves masked rows 0; over the rows, masked ones add nothing.
  Value* dead_of_reduction(const Node& call, Value* mask) {
    if (call.op.operator_name().overload_name != "dim_IntList") return nullptr;
    Sizes sizes = sizes_of(mask), rest;
    std::vector<bool> reduced(sizes.size());
    if (!call.operands[1].constant()->isList() || call.operands[1].constant()->toListRef().empty()) return nullptr;
    for (const c10::IValue& item : call.operands[1].constant()->toListRef()) {
      const int64_t dim = item.toInt() < 0 ? item.toInt() + static_cast<int64_t>(sizes.size()) : item.toInt();
      if (sizes[static_cast<size_t>(dim)] != 1) return nullptr;
      reduced[static_cast<size_t>(dim)] = true;
    }
    const bool keep_dimensions = call.operands[2].constant()->toBool();
    for (size_t i = 0; i < sizes.size(); ++i)
      if (keep_dimensions || !reduced[i]) rest.push_back(sizes[i]);
    return reshaped(mask, rest);
  }

  // --- where a part of the dimensions is taken, or the gradient stands in a larger one. Along other dimensions than
  // the mask nothing changes; along its own it is taken, or stands among masked rows, in the same way.

  Value* taken(const Node& call, Value* mask) {
    return size_at(mask, dim_of(call, 1, mask)) == 1 ? mask : moved(call, mask);
  }

  Value* selected(Value* mask, int64_t dim, const Operand& index) {
    if (size_at(mask, dim) != 1) return emit("aten::select", "int", {mask, c10::IValue(dim), index});
    Sizes rest = sizes_of(mask);
    rest.erase(rest.begin() + dim);
    return reshaped(mask, rest);
  }

  Value* dead_of_turned(const Node& call, Value* mask) {
    return call.operands.back().constant()->toListRef().empty() ? nullptr : moved(call, mask);
  }

  void visit_parts(const Node& call) {
    Value* mask = dead(call.operands[0]);
    if (!mask) return;
    const bool one_each = is(call, "aten::unbind");
    const int64_t dim = dim_of(call, one_each ? 1 : 2, mask);
    int64_t start = 0;
    for (Value* part : call.results) {
      const int64_t end = start + (one_each ? 1 : size_at(part, dim));
      if (one_each)
        note(part, selected(mask, dim, Operand(c10::IValue(start))));
      else if (size_at(mask, dim) == 1)
        note(part, mask);
      else
        note(part, emit("aten::slice", "Tensor",
                        {mask, c10::IValue(dim), c10::IValue(start), c10::IValue(end), c10::IValue(int64_t{1})}));
      start = end;
    }
  }

  /// How many rows that are not dead there are up to each.
  Value* dead_of_cumsum(const Node& call, Value* mask) {
    const int64_t dim = dim_of(call, 1, mask);
    if (size_at(mask, dim) == 1) return mask;
    return none_of(emit("aten::cumsum", "", {opposite(mask), c10::IValue(dim), c10::IValue()}));
  }

  Value* dead_of_padded(const Node& call, Value* mask) {
    if (!is_zero(call.operands[2])) return nullptr;
    std::vector<int64_t> pad = call.operands[1].constant()->toIntVector();
    bool moves = false;
    for (size_t i = 0; i < pad.size(); ++i) {
      if (sizes_of(mask)[sizes_of(mask).size() - 1 - i / 2] == 1) pad[i] = 0;
      moves |= pad[i] != 0;
    }
    if (!moves) return mask;
    return opposite(emit(call.op, {opposite(mask), c10::IValue(pad), c10::IValue(int64_t{0})}));
  }

  Value* dead_of_slice_backward(const Node& call, Value* mask) {
    const int64_t dim = dim_of(call, 2, mask);
    const bool one_row = dim == 0 && size_at(call.operands[0].value(), dim) == 1;
    if (size_at(mask, dim) == 1 && !one_row) return mask;
    Sizes sizes = sizes_of(mask);
    sizes[static_cast<size_t>(dim)] = size_at(call.results[0], dim);
    std::vector<Operand> operands = call.operands;
    operands[0] = opposite(mask);
    operands[1] = c10::IValue(sizes);
    return opposite(emit(call.op, std::move(operands)));
  }

  /// A part of zeros is dead in whole.
  Value* dead_of_joined(const Node& call, bool stacked) {
    const auto* parts = call.operands[0].list();
    const Value* result = call.results[0];
    const size_t rank = sizes_of(result).size();
    const int64_t dim = dim_of(call, 1, result);
    if (!parts || parts->empty()) return nullptr;
    std::vector<Value*> masks;
    Sizes sizes(rank, 1);
    for (const Operand& part : *parts) {
      Value* mask = dead(part);
      if (!mask && is_zero(part))
        mask = filled(Sizes(rank - (stacked ? 1 : 0), 1), at::kBool, "aten::ones", call.results[0]);
      if (!mask) return nullptr;
      if (stacked) mask = emit("aten::unsqueeze", "", {mask, c10::IValue(dim)});
      if (sizes_of(mask).size() != rank) return nullptr;  // (a tensor of no elements, of another rank)
      for (size_t i = 0; i < rank; ++i) sizes[i] = std::max(sizes[i], sizes_of(mask)[i]);
      masks.push_back(mask);
    }
    if (sizes[static_cast<size_t>(dim)] == 1 && dim != 0) {
      Value* all = masks[0];
      for (Value* mask : masks) all = both(all, mask);
      return all;
    }
    std::vector<Operand> full;
    for (size_t i = 0; i < masks.size(); ++i) {
      sizes[static_cast<size_t>(dim)] = stacked ? 1 : size_at((*parts)[i].value(), dim);
      full.emplace_back(emit("aten::expand", "", {masks[i], c10::IValue(sizes), c10::IValue(false)}));
    }
    return emit("aten::cat", "", {Operand(std::move(full)), c10::IValue(dim)});
  }

  /// The gradient is added to zeros at places along a dimension.
  Value* dead_of_scattered(const Node& call, bool by_rows) {
    Value* mask = dead(call.operands[3]);
    if (!mask || !is_zero(call.operands[0])) return nullptr;
    const Value* result = call.results[0];
    if (sizes_of(mask).size() != sizes_of(result).size()) return nullptr;
    const int64_t dim = dim_of(call, 1, result);
    if (size_at(mask, dim) == 1) return mask;
    if (!by_rows) return nullptr;  // each element goes its own way
    Sizes sizes = sizes_of(mask);
    sizes[static_cast<size_t>(dim)] = size_at(result, dim);
    return none_of(emit("aten::index_add", "",
                        {filled(sizes, at::kLong, "aten::zeros", mask), c10::IValue(dim), call.operands[2],
                         counted(mask), c10::IValue(int64_t{1})}));
  }

  /// The same for a gradient of `x[{i, ...}]`: lists of places along one dimension, or along the first ones together.
  Value* dead_of_index_put(const Node& call) {
    Value *mask = dead(call.operands[2]), *places = nullptr;
    const auto* indices = call.operands[1].list();
    if (!mask || !indices || !is_zero(call.operands[0])) return nullptr;
    size_t first = 0, count = 0;
    for (size_t i = 0; i < indices->size(); ++i) {
      Value* index = (*indices)[i].value();
      if (!index) continue;
      if (!index->meta || index->meta->dtype != at::kLong || sizes_of(index).size() != 1) return nullptr;
      if (count++ == 0) first = i, places = index;
      if (i != first + count - 1 || sizes_of(index) != sizes_of(places)) return nullptr;
    }
    const Value* result = call.results[0];
    if (count == 0 || sizes_of(mask).size() + count - 1 != sizes_of(result).size()) return nullptr;
    Sizes sizes = sizes_of(mask), ones(count, 1);
    const auto at = static_cast<std::ptrdiff_t>(first);
    const bool along = sizes[first] != 1;
    if (along) {
      sizes[first] = sizes_of(result)[first];
      // Places may count from the end, which index_add does not know.
      places = emit("aten::remainder", "Scalar", {places, c10::IValue(std::max<int64_t>(sizes[first], 1))});
      mask = none_of(emit("aten::index_add", "",
                          {filled(sizes, at::kLong, "aten::zeros", mask), c10::IValue(static_cast<int64_t>(first)),
                           places, counted(mask), c10::IValue(int64_t{1})}));
    }
    sizes.insert(sizes.begin() + at, ones.begin() + 1, ones.end());
    if (along && count > 1) std::swap(sizes[first], sizes[first + count - 1]);
    return reshaped(mask, sizes);
  }

  /// mm and bmm: masked rows of the first factor (columns of the second) are masked in the product; masked where the
  /// sum runs means that the other factor has no part there.
  void visit_product(graph::NodePtr node) {
    Node& call = *node;
    Value *a = dead(call.operands[0]), *b = dead(call.operands[1]), *kept = nullptr;
    const auto at = [](const Value* mask, size_t from_end) { return sizes_of(mask)[sizes_of(mask).size() - from_end]; };
    if (a && at(a, 1) == 1) {
      kept = a;
    } else if (a && at(a, 2) == 1) {
      call.operands[1] = cleared(call.operands[1].value(), transposed(a));
    }
    if (b && at(b, 2) == 1) {
      kept = kept ? either(kept, b) : b;
    } else if (b && at(b, 1) == 1) {
      call.operands[0] = cleared(call.operands[0].value(), transposed(b));
    }
    keep(std::move(node));
    if (kept) clear(call.results[0], kept);
  }

  void visit_convolution(graph::NodePtr node) {
    Node& call = *node;
    Value* mask = dead(call.operands[0]);
    if (!mask || std::count(sizes_of(mask).begin() + 1, sizes_of(mask).end(), 1) + 1 !=
                     static_cast<std::ptrdiff_t>(sizes_of(mask).size()))
      return keep(std::move(node));
    call.operands[1] = cleared(call.operands[1].value(), mask);
    keep(std::move(node));
    clear(call.results[0], mask);
  }

  void visit_norm(graph::NodePtr node) {
    if (is(*node, "aten::native_layer_norm_backward")) return visit_layer_norm(std::move(node));
    Node& call = *node;
    const bool groups = is(call, "aten::native_group_norm_backward");
    Value* mask = dead(call.operands[0]);
    const c10::IValue* trains = groups ? nullptr : call.operands[7].constant();
    if (!mask || (!groups && !(trains && trains->isBool() && !trains->toBool()))) return keep(std::move(node));
    for (const size_t operand : groups ? std::vector<size_t>{1, 2, 3} : std::vector<size_t>{1}) {
      Value* value = call.operands[operand].value();
      Value* rows = value ? of_rows(mask, value) : nullptr;
      if (!rows || !fitted(value, rows)) return keep(std::move(node));
      call.operands[operand] = cleared(value, rows);
    }
    keep(std::move(node));
    if (call.results[0]->meta) clear(call.results[0], of_rows(mask, call.results[0]));
  }

  void visit_layer_norm(graph::NodePtr node) {
    Node& call = *node;
    Value* mask = dead(call.operands[0]);
    const size_t rank = mask ? sizes_of(mask).size() : 0;
    const size_t normalized = call.operands[2].constant()->toListRef().size();
    for (size_t i = rank - std::min(rank, normalized); i < rank; ++i)
      if (mask && sizes_of(mask)[i] != 1) mask = nullptr;
    if (!mask) return keep(std::move(node));
    for (const size_t operand : {1, 3, 4})  // the input, its mean, and its 1/std: a dead row is 0 in all of them
      call.operands[operand] = cleared(call.operands[operand].value(), mask);
    keep(std::move(node));
    note(call.results[0], mask);
  }

  std::vector<std::pair<Value*, bool>>& row_masks_;
  std::unordered_set<const Value*> of_tangents_;
  std::unordered_map<const Value*, Value*> dead_;
  std::map<std::pair<const Value*, const Value*>, Value*> cleared_;
  graph::Replacements replacements_;
  std::unordered_map<const Value*, bool> zeros_;
};

}  // namespace

void mask_rows(Joint& joint) {
  const at::NoGradGuard no_grad;
  MaskedRows(joint).run();
}

}  // namespace triage::aot
