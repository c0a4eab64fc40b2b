#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "runtime/backends/aot/joint.h"
#include "runtime/graph/evaluate.h"
#include "runtime/graph/uses.h"

// For every gradient the pass knows, where it can, a mask of what is dead in it: exactly 0 because a selection over rows made
// it so. A mask is a bool value of the gradient's rank that broadcasts to it: along the rows it has their number, else 1. Where
// a view moves the rows, the mask moves along.

namespace triage::aot {
namespace {

using graph::Graph;
using graph::Node;
using graph::Operand;
using graph::TensorMeta;
using graph::Value;
using Sizes = std::vector<int64_t>;

const Sizes& sizes_of(const Value* value) { return value->meta->sizes; }

int64_t product(const Sizes& sizes, size_t count) {
  int64_t result = 1;
  for (size_t i = 0; i < count; ++i) result *= sizes[i];
  return result;
}

std::string name_of(const Node& node) { return node.op.operator_name().name; }

/// Row by row and element by element: gradient in, other tensors of the same rows, gradient out.
bool is_elementwise_backward(const std::string& name) {
  static const std::unordered_set<std::string> names = {
      "aten::tanh_backward",      "aten::sigmoid_backward",  "aten::threshold_backward",   "aten::gelu_backward",
      "aten::silu_backward",      "aten::mish_backward",     "aten::elu_backward",         "aten::leaky_relu_backward",
      "aten::hardtanh_backward",  "aten::logit_backward",    "aten::log_sigmoid_backward", "aten::hardsigmoid_backward",
      "aten::hardswish_backward", "aten::softplus_backward", "aten::softshrink_backward",  "aten::hardshrink_backward"};
  return names.count(name) != 0;
}

/// What gives 0 for 0, element by element or by moving elements, when the mask goes the same way.
bool keeps_elements(const std::string& name) {
  static const std::unordered_set<std::string> names = {"aten::neg", "aten::clone", "aten::alias", "aten::detach",
                                                        "aten::_to_copy"};
  return names.count(name) != 0;
}

bool moves_dimensions(const std::string& name) {
  static const std::unordered_set<std::string> names = {"aten::t", "aten::transpose", "aten::permute",
                                                        "aten::unsqueeze", "aten::squeeze"};
  return names.count(name) != 0;
}

bool is_reshape(const std::string& name) {
  static const std::unordered_set<std::string> names = {"aten::view", "aten::reshape", "aten::_unsafe_view",
                                                        "aten::_reshape_alias"};
  return names.count(name) != 0;
}

class DeadRows {
 public:
  explicit DeadRows(Joint& joint) : graph_(joint.graph) {
    const auto& inputs = graph_.inputs();
    for (size_t i = joint.num_primals; i < inputs.size(); ++i) of_tangents_.insert(inputs[i].value);
  }

  void run() {
    std::vector<std::unique_ptr<Node>> nodes;
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
    graph::eliminate_dead(graph_);
    graph::verify(graph_);
  }

 private:
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
    node->results[0]->meta = TensorMeta{result.scalar_type(), result.sizes().vec(), result.device()};
    return node->results[0];
  }

  Value* reshaped(Value* mask, const Sizes& sizes) {
    return sizes_of(mask) == sizes ? mask : emit("aten::reshape", "", {mask, Operand(c10::IValue(sizes))});
  }
  Value* opposite(Value* mask) { return emit("aten::logical_not", "", {mask}); }
  Value* either(Value* a, Value* b) { return a == b ? a : emit("aten::logical_or", "", {a, b}); }
  Value* both(Value* a, Value* b) { return a == b ? a : emit("aten::logical_and", "", {a, b}); }
  Value* transposed(Value* mask) {
    if (mask->producer && name_of(*mask->producer) == "aten::t") return mask->producer->operands[0].value();
    return emit("aten::transpose", "int", {mask, c10::IValue(int64_t{-2}), c10::IValue(int64_t{-1})});
  }

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

  bool is_zero(const Operand& operand) const {
    if (const c10::IValue* constant = operand.constant())
      return (constant->isInt() && constant->toInt() == 0) || (constant->isDouble() && constant->toDouble() == 0);
    const Value* value = operand.value();
    if (!value) return false;
    if (const at::Tensor* tensor = graph_.constant_of(value))
      return !graph_.is_variable(value) && tensor->numel() == 1 && tensor->eq(0).all().item<bool>();
    if (!value->producer) return false;
    const Node& node = *value->producer;
    const std::string name = name_of(node);
    if (name == "aten::zeros" || name == "aten::zeros_like" || name == "aten::new_zeros") return true;
    if (name == "aten::scalar_tensor" || name == "aten::expand" || name == "aten::alias" || is_reshape(name))
      return is_zero(node.operands[0]);
    return false;
  }

  /// A condition over the rows of `like`: shape (N, 1, ..., 1), of the same rank.
  Value* row_mask(const Operand& operand, const Value* like) const {
    Value* mask = operand.value();
    if (!mask || !mask->meta || mask->meta->dtype != at::kBool || sizes_of(like).empty()) return nullptr;
    if (mask->producer && name_of(*mask->producer) == "aten::expand" && sizes_of(mask) == sizes_of(like))
      mask = mask->producer->operands[0].value();
    Sizes rows(sizes_of(like).size(), 1);
    rows[0] = sizes_of(like)[0];
    return mask && mask->meta && sizes_of(mask) == rows ? mask : nullptr;
  }

  void visit(std::unique_ptr<Node> node) {
    Node& call = *node;
    source_ = call.source;
    const std::string name = name_of(call);
    bool empty = false;
    for (const Value* result : call.results)  // one without meta is undefined: nobody asked for it
      empty |= result->meta && product(sizes_of(result), sizes_of(result).size()) == 0;
    if (empty) return keep(std::move(node));
    if (name == "aten::mm" || name == "aten::bmm") return visit_product(std::move(node));
    if (name == "aten::convolution_backward") return visit_convolution(std::move(node));
    if (name == "aten::native_layer_norm_backward") return visit_layer_norm(std::move(node));
    keep(std::move(node));
    Value* result = call.results.size() == 1 ? call.results[0] : nullptr;
    if (!result || !result->meta || call.operands.empty()) return;
    if (name == "aten::where" && call.operands.size() == 3) return note(result, dead_of_where(call));
    if (name == "aten::masked_fill") return note(result, dead_of_masked_fill(call));
    if (name == "aten::add" || name == "aten::sub") return note(result, dead_of_sum(call));
    if (name == "aten::mul" || name == "aten::div") return visit_factors(call, result);
    Value* mask = dead(call.operands[0]);
    if (!mask) return;
    if (keeps_elements(name)) return note(result, mask);
    if (moves_dimensions(name)) return note(result, moved(call, mask));
    if (is_reshape(name)) return note(result, dead_of_reshape(call.operands[0].value(), mask, sizes_of(result)));
    if (name == "aten::expand") return note(result, mask);
    if (name == "aten::sum") return note(result, dead_of_reduction(call, mask));
    if (is_elementwise_backward(name)) return clear(result, mask);
    if (name == "aten::_softmax_backward_data" || name == "aten::_log_softmax_backward_data")
      return visit_softmax(call, result, mask);
  }

  void keep(std::unique_ptr<Node> node) { graph_.nodes().push_back(std::move(node)); }

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

  Value* dead_of_where(const Node& call) {
    const Operand &chosen = call.operands[1], &other = call.operands[2];
    const Value* result = call.results[0];
    Value* mask = row_mask(call.operands[0], result);
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
    if (!first && name_of(call) == "aten::mul") mask = dead(call.operands[1]);
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

  /// A sum over other dimensions than the rows leaves dead rows 0; over the rows, dead ones add nothing.
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

  /// mm and bmm: dead rows of the first factor (columns of the second) are dead in the product; dead where the sum runs
  /// means that the other factor has no part there.
  void visit_product(std::unique_ptr<Node> node) {
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

  void visit_convolution(std::unique_ptr<Node> node) {
    Node& call = *node;
    Value* mask = dead(call.operands[0]);
    if (!mask || std::count(sizes_of(mask).begin() + 1, sizes_of(mask).end(), 1) + 1 !=
                     static_cast<std::ptrdiff_t>(sizes_of(mask).size()))
      return keep(std::move(node));
    call.operands[1] = cleared(call.operands[1].value(), mask);
    keep(std::move(node));
    clear(call.results[0], mask);
  }

  void visit_layer_norm(std::unique_ptr<Node> node) {
    Node& call = *node;
    Value* mask = dead(call.operands[0]);
    const size_t rank = mask ? sizes_of(mask).size() : 0;
    const size_t normalized = call.operands[2].constant()->toListRef().size();
    for (size_t i = rank - std::min(rank, normalized); i < rank; ++i)
      if (sizes_of(mask)[i] != 1) mask = nullptr;
    if (!mask) return keep(std::move(node));
    for (const size_t operand : {1, 3, 4})  // the input, its mean, and its 1/std: a dead row is 0 in all of them
      call.operands[operand] = cleared(call.operands[operand].value(), mask);
    keep(std::move(node));
    note(call.results[0], mask);
  }

  Graph& graph_;
  Source source_;
  std::unordered_set<const Value*> of_tangents_;
  std::unordered_map<const Value*, Value*> dead_;
  std::map<std::pair<const Value*, const Value*>, Value*> cleared_;
  graph::Replacements replacements_;
};

}  // namespace

void mask_dead_rows(Joint& joint) {
  const at::NoGradGuard no_grad;
  DeadRows(joint).run();
}

}  // namespace triage::aot
