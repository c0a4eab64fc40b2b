#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <triage/graph.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "runtime/graph/aliases.h"
#include "runtime/graph/evaluate.h"
#include "runtime/graph/uses.h"

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
    std::erase_if(graph_.nodes(), [&](const std::unique_ptr<Node>& node) { return folded_.count(node.get()) != 0; });
    graph_.drop_unused_constants();
  }

 private:
  bool is_foldable(Node& node) const {
    if (is_random(node.op) || is_effect(node.op) || writes(node.op) || is_uninitialized(node.op)) return false;
    if (node.results.empty()) return false;
    bool constant = true;
    double elements = 1;
    for_each_use(node, [&](Value*& value) {
      const auto found = constants_.find(value);
      // A result computed here would cut the gradient's way to a parameter.
      constant = constant && found != constants_.end() && !found->second.requires_grad();
      if (constant) elements = std::max(elements, static_cast<double>(found->second.numel()));
    });
    return constant && elements * growth(node) <= kMaxElements;
  }

  /// Results of operators that make tensors from numbers alone can be of any size, and so can `repeat`; a Scalar of
  /// arithmetic says nothing about size, so numbers count only where no tensor comes in, lists always.
  static double growth(Node& node) {
    bool has_tensor = false;
    for_each_use(node, [&](Value*&) { has_tensor = true; });
    double product = 1;
    for (const auto& operand : node.operands) {
      const c10::IValue* constant = operand.constant();
      if (constant && (!has_tensor || constant->isList())) product = std::max(product, graph::growth(*constant));
    }
    return product;
  }

  /// Runs the node alone; leaves it where it fails (it will fail again, with its script line, when the graph runs).
  void fold(Node& node) {
    std::vector<at::Tensor> results;
    try {
      results = compute(node);
    } catch (const std::exception&) {
      return;
    }
    for (const at::Tensor& result : results)
      if (!result.defined() || !result.has_storage() || static_cast<double>(result.numel()) > kMaxElements ||
          is_seen_view(node, result))
        return;
    for (size_t i = 0; i < results.size(); ++i) {
      Value* constant = graph_.add_constant(results[i]);
      constant->is_flags = node.results[i]->is_flags;
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
  bool is_seen_view(Node& node, const at::Tensor& result) const {
    if (std::none_of(node.results.begin(), node.results.end(), [&](const Value* value) { return seen_.count(value); }))
      return false;
    bool shares = false;
    for_each_use(node, [&](Value*& value) {
      const auto found = constants_.find(value);
      shares |= found != constants_.end() && found->second.has_storage() && found->second.is_alias_of(result);
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

void fold_constants(Graph& graph) { Folder(graph).run(); }

}  // namespace triage::graph
