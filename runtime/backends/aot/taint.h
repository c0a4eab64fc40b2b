#pragma once
#include <ATen/core/Tensor.h>
#include <triage/graph.h>

#include <memory>
#include <vector>

/// Where two runs of a graph differ that begin with different values in some elements of the inputs.
namespace triage::aot {

/// For each value a bool tensor of its sizes: where it may differ. An operator carries differences along by its rule;
/// behind one that has no rule, everything differs. Whole numbers and masks that do not differ are computed, so that it
/// is known what they select.
class Taint {
 public:
  explicit Taint(const graph::Graph& graph);
  ~Taint();
  Taint(const Taint&) = delete;
  Taint& operator=(const Taint&) = delete;

  void begin_with(const graph::Value* value, const at::Tensor& tainted);
  /// The value is this one in both runs.
  void know(const graph::Value* value, const at::Tensor& known);
  /// The same of a mask, whatever it is computed from.
  void hold(const graph::Value* mask, const at::Tensor& known);
  /// For each node of the graph, in their order.
  void visit(const graph::Node& node);
  /// Undefined where the value does not differ.
  at::Tensor of(const graph::Value* value) const;
  /// The search for bad rows that says which ones a repair overwrites: the gradient of the repair has it
  /// (runtime/flags/autograd.cpp). Null for other operators, and for a repair without a gradient.
  const graph::Node* search_of(const graph::Node& repair) const;

 private:
  class TaintRules;
  std::unique_ptr<TaintRules> rules_;
};

/// A loss whose result is one number for the batch.
bool sums_losses(const graph::Node& node);

bool holds_floats(const graph::Value* value);
int64_t elements_of(const graph::Value* value);

}  // namespace triage::aot
