#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <triage/graph.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/passes/aliases.h"
#include "runtime/graph/passes/clean.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/graph/text/describe.h"
#include "runtime/graph/text/tensor_text.h"
#include "runtime/graph/verifier.h"
#include "runtime/memory/overlap.h"

namespace triage::graph {
namespace {

/// The largest result that is worth carrying in a graph.
constexpr double kMaxElements = 1e6;

/// An upper bound of how large the numbers among the arguments can make a result (sizes, repeats, the end of a range).
double growth(const c10::IValue& value) {
  if (value.isInt()) return std::max(1.0, std::abs(static_cast<double>(value.toInt())));
  if (value.isDouble()) return std::isfinite(value.toDouble()) ? std::max(1.0, std::abs(value.toDouble())) : 1.0;
  double product = 1;
  if (value.isList())
    for (const c10::IValue& item : value.toListRef()) product *= growth(item);
  return product;
}

class Folder {
 public:
  explicit Folder(Graph& graph) : graph_(graph), seen_(seen_through_outputs(graph)) {
    for (const auto& constant : graph.constants())
      if (!constant.variable) constants_.emplace(constant.value, constant.tensor);
  }

  void run() {
    for (auto& node : graph_.nodes()) {
      for_each_use(*node, [&](Value*& value) {
        if (auto found = replacements_.find(value); found != replacements_.end()) value = found->second;
      });
      if (is_foldable(*node)) fold(*node);
    }
    replace_uses(graph_, replacements_);
    std::erase_if(graph_.nodes(), [&](const NodePtr& node) { return folded_.count(node.get()) != 0; });
    graph_.drop_unused_constants();
  }

 private:
  bool is_foldable(const Node& node) const {
    if (!computes_only(node.op)) return false;
    if (node.results.empty()) return false;
    bool constant = true;
    double elements = 1;
    for_each_use(node, [&](const Value* value) {
      const auto found = constants_.find(value);
      // A result computed here would cut the gradient's way to a parameter.
      constant = constant && found != constants_.end() && !found->second.requires_grad();
      if (constant) elements = std::max(elements, static_cast<double>(found->second.numel()));
    });
    return constant && elements * growth(node) <= kMaxElements;
  }

  /// Results of operators that make tensors from numbers alone can be of any size, and so can `repeat`; a Scalar of
  /// arithmetic says nothing about size, so numbers count only where no tensor comes in, lists always.
  static double growth(const Node& node) {
    bool has_tensor = false;
    for_each_use(node, [&](const Value*) { has_tensor = true; });
    double product = 1;
    for (const auto& operand : node.operands) {
      const c10::IValue* constant = operand.constant();
      if (constant && (!has_tensor || constant->isList())) product = std::max(product, graph::growth(*constant));
    }
    return product;
  }

  /// Runs the node alone; leaves it where it fails (it will fail again, with its script line, when the graph runs).
  void fold(const Node& node) {
    std::vector<at::Tensor> results;
    try {
      results = compute(node);
    } catch (const std::exception&) {
      return;
    }
    if (results.size() != node.results.size()) return;
    for (const at::Tensor& result : results)
      if (!result.defined() || !result.has_storage() || static_cast<double>(result.numel()) > kMaxElements ||
          is_seen_view(node, result))
        return;
    for (size_t i = 0; i < results.size(); ++i) {
      Value* constant = graph_.add_constant(results[i]);
      graph_.edit(constant).is_flags = node.results[i]->is_flags;
      constants_.emplace(constant, results[i]);
      replacements_[node.results[i]] = constant;
    }
    folded_.insert(&node);
  }

  std::vector<at::Tensor> compute(const Node& node) const {
    // Ordinary tensors, whatever the mode of the thread that captures: they outlive it.
    c10::InferenceMode no_inference(false);
    at::NoGradGuard no_grad;
    return evaluate(node, [&](const Value* value) { return constants_.at(value); });
  }

  /// As two constants, a constant and a view of it would be two memories to whoever is given them.
  bool is_seen_view(const Node& node, const at::Tensor& result) const {
    if (std::none_of(node.results.begin(), node.results.end(), [&](const Value* value) { return seen_.count(value); }))
      return false;
    bool shares = false;
    for_each_use(node, [&](const Value* value) {
      const auto found = constants_.find(value);
      shares |= found != constants_.end() && share_memory(found->second, result);
    });
    return shares;
  }

  Graph& graph_;
  std::unordered_set<const Value*> seen_;
  std::unordered_map<const Value*, at::Tensor> constants_;  // but variables
  Replacements replacements_;
  std::unordered_set<const Node*> folded_;
};

}  // namespace

void fold_constants(Graph& graph) {
  const StaysValid valid(graph);
  Folder(graph).run();
}

namespace {

void append_bytes(std::string& key, const void* data, size_t size) { key.append(static_cast<const char*>(data), size); }

/// Appends what tells this constant from every other, bit for bit.
void append_key(std::string& key, const c10::IValue& value) {
  if (value.isNone()) {
    key += 'n';
  } else if (value.isBool()) {
    key += value.toBool() ? 't' : 'f';
  } else if (value.isInt()) {
    int64_t number = value.toInt();
    append_bytes(key += 'i', &number, sizeof(number));
  } else if (value.isDouble()) {
    double number = value.toDouble();
    append_bytes(key += 'd', &number, sizeof(number));
  } else if (value.isComplexDouble()) {
    auto number = value.toComplexDouble();
    append_bytes(key += 'c', &number, sizeof(number));
  } else if (value.isString()) {
    key += 's' + std::to_string(value.toStringRef().size()) + ':' + value.toStringRef();
  } else if (value.isDevice()) {
    key += '@' + value.toDevice().str() + ';';
  } else if (value.isList()) {
    auto items = value.toListRef();
    key += '[' + std::to_string(items.size()) + ':';
    for (const c10::IValue& item : items) append_key(key, item);
  } else {
    const void* identity = &value;  // equal to nothing else
    append_bytes(key += '?', &identity, sizeof(identity));
  }
}

void append_key(std::string& key, const Operand& operand) {
  if (const Value* value = operand.value()) {
    append_bytes(key += 'v', &value, sizeof(value));
  } else if (const auto* items = operand.list()) {
    key += '[' + std::to_string(items->size()) + ':';
    for (const auto& item : *items) append_key(key, item);
  } else {
    append_key(key, *operand.constant());
  }
}

std::string key_of(const Node& node) {
  std::string key = op_name(node.op) + '(';
  for (const auto& operand : node.operands) append_key(key, operand);
  return key;
}

/// Small constants are compared by their text, which is exact; large ones, and those that may change, by identity.
std::string key_of(const Constant& constant) {
  const at::Tensor& tensor = constant.tensor;
  const auto* impl = tensor.unsafeGetTensorImpl();
  if (constant.variable || !is_printable(tensor) || tensor.requires_grad()) {
    std::string key = "impl ";
    append_bytes(key, &impl, sizeof(impl));
    return key;
  }
  return layout_text(tensor) + (impl->is_wrapped_number() ? " number " : " ") + values_text(tensor);
}

void merge_constants(Graph& graph, const Values& seen_outside) {
  Replacements replacements;
  std::unordered_map<std::string, Value*> seen;
  for (const auto& constant : graph.constants()) {
    if (!constant.variable && seen_outside.count(constant.value)) continue;
    auto [first, fresh] = seen.emplace(key_of(constant) + (constant.value->is_flags ? "flags" : ""), constant.value);
    if (!fresh) replacements[constant.value] = first->second;
  }
  replace_uses(graph, replacements);
}

bool makes_one_of(const Values& values, const Node& node) {
  return std::any_of(node.results.begin(), node.results.end(),
                     [&](const Value* result) { return values.count(result) != 0; });
}

/// What a caller sees as two memories, or as two tensors, must stay two. Two views of one memory are that as one, too.
bool would_show(const Values& outputs, const Node& a, const Node& b, const Values& seen) {
  const auto is_seen = [&](const Value* value) { return seen.count(value) != 0; };
  switch (sharing(a)) {
    case Sharing::always:
      return makes_one_of(outputs, a) && makes_one_of(outputs, b);
    case Sharing::maybe:
      return makes_one_of(seen, a) && makes_one_of(seen, b);
    default:
      for (size_t i = 0; i < a.results.size(); ++i)
        if (is_seen(a.results[i]) && is_seen(b.results[i])) return true;
      return false;
  }
}

/// Gradients add up behind each cast to fewer bits; behind one cast for both they would add up in those fewer bits.
bool narrows(const Node& node) {
  if (op_name(node.op).rfind("aten::to.", 0) != 0 || !node.results[0]->meta) return false;
  const at::ScalarType dtype = node.results[0]->meta->dtype;
  return dtype == at::kBFloat16 || dtype == at::kHalf;
}

}  // namespace

void eliminate_common(Graph& graph) { eliminate_common(graph, {}); }

void eliminate_common(Graph& graph, const Values& differentiable) {
  const StaysValid valid(graph);
  Values seen_outside = seen_through_outputs(graph);
  merge_constants(graph, seen_outside);
  Replacements replacements;
  const Values outputs(graph.outputs().begin(), graph.outputs().end());
  std::unordered_map<std::string, const Node*> seen;
  for (auto& node : graph.nodes()) {
    for_each_use(*node, [&](Value*& value) {
      if (auto found = replacements.find(value); found != replacements.end()) value = found->second;
    });
    if (narrows(*node)) continue;
    if (!computes_only(node->op)) continue;
    if (makes_one_of(differentiable, *node)) continue;
    auto [first, fresh] = seen.emplace(key_of(*node), node.get());
    if (fresh || first->second->results.size() != node->results.size()) continue;
    if (would_show(outputs, *node, *first->second, seen_outside)) continue;
    for (size_t i = 0; i < node->results.size(); ++i) {
      replacements[node->results[i]] = first->second->results[i];
      if (seen_outside.count(node->results[i])) seen_outside.insert(first->second->results[i]);
    }
  }
  replace_uses(graph, replacements);
  graph.drop_unused_constants();
  std::erase_if(graph.nodes(), [&](const NodePtr& node) {
    return !node->results.empty() && replacements.count(node->results.front());
  });
}

void eliminate_dead(Graph& graph) {
  const StaysValid valid(graph);
  std::unordered_set<const Value*> used(graph.outputs().begin(), graph.outputs().end());
  auto& nodes = graph.nodes();
  std::vector<NodePtr> kept;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    // A random operator moves the generator on: without it the ones after it would draw other numbers.
    bool needed = draws(**node) || is_effect((*node)->op) || writes((*node)->op) || (*node)->checks;
    for (const Value* result : (*node)->results) needed = needed || used.count(result);
    if (!needed) continue;
    for_each_use(**node, [&](const Value* value) { used.insert(value); });
    kept.push_back(std::move(*node));
  }
  nodes.clear();
  nodes.insert(nodes.end(), std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  graph.drop_unused_constants();
}

void clean(Graph& graph, const Values& differentiable, bool fold) {
  // Folding makes equal constants, merging those makes equal calls, which may fold again. No pass adds a node.
  std::pair<size_t, size_t> before, after{graph.nodes().size(), graph.constants().size()};
  do {
    before = after;
    if (fold) fold_constants(graph);
    eliminate_common(graph, differentiable);
    eliminate_dead(graph);
    after = {graph.nodes().size(), graph.constants().size()};
  } while (after != before);
  verify(graph);
}

void clean(Graph& graph) { clean(graph, {}); }

}  // namespace triage::graph
