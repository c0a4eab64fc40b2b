#include <unordered_map>
#include <unordered_set>

#include "runtime/backends/aot/joint.h"
#include "runtime/graph/copy.h"
#include "runtime/graph/passes/clean.h"
#include "runtime/graph/passes/uses.h"

namespace triage::aot {
namespace {

using graph::Copies;
using graph::Graph;
using graph::Node;
using graph::Value;

using Values = std::unordered_set<const Value*>;

/// What `values` are computed from, themselves included, with all that the same calls give.
Values ancestors(const Graph& graph, Values values) {
  const auto& nodes = graph.nodes();
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    bool needed = false;
    for (const Value* result : (*node)->results) needed |= values.count(result) != 0;
    if (!needed) continue;
    values.insert((*node)->results.begin(), (*node)->results.end());
    graph::for_each_use(**node, [&](const Value* value) { values.insert(value); });
  }
  return values;
}

class Partitioner {
 public:
  Partitioner(const Joint& joint, bool folds)
      : joint_(joint),
        folds_(folds),
        halves_{Graph(joint.graph.name()), Graph(joint.graph.name() + "_backward"), {}, 0, {}} {}

  Halves run() {
    const auto& outputs = joint_.graph.outputs();
    const auto middle = outputs.begin() + static_cast<std::ptrdiff_t>(joint_.num_outputs);
    find_tangent_part();
    Values kept(outputs.begin(), middle);
    for (const auto& node : joint_.graph.nodes())
      if (graph::has_order(*node)) {  // in the forward half, whoever uses it
        bool backward = false;
        graph::for_each_use(*node, [&](const Value* value) { backward |= of_tangents_.count(value) != 0; });
        if (backward) throw GraphError("the backward run of the graph draws random numbers", node->source);
        kept.insert(node->results.begin(), node->results.end());
        graph::for_each_use(*node, [&](const Value* value) { kept.insert(value); });
      }
    forward_ = ancestors(joint_.graph, std::move(kept));
    for (auto gradient = middle; gradient != outputs.end(); ++gradient) want(*gradient);
    build_forward({outputs.begin(), middle});
    build_backward({middle, outputs.end()});
    graph::clean(halves_.forward, {}, folds_);
    graph::clean(halves_.backward, {}, folds_);
    return std::move(halves_);
  }

 private:
  void find_tangent_part() {
    const auto& inputs = joint_.graph.inputs();
    for (size_t i = joint_.num_primals; i < inputs.size(); ++i) of_tangents_.insert(inputs[i].value);
    for (const auto& node : joint_.graph.nodes()) {
      bool depends = false;
      graph::for_each_use(*node, [&](const Value* value) { depends |= of_tangents_.count(value) != 0; });
      if (depends) of_tangents_.insert(node->results.begin(), node->results.end());
    }
  }

  /// Decides for a value that the backward graph needs, and all that it is computed from there: computed there, or
  /// saved.
  void want(const Value* asked) {
    std::vector<const Value*> left{asked};
    while (!left.empty()) {
      const Value* value = left.back();
      left.pop_back();
      if (!wanted_.insert(value).second) continue;
      const Node* node = value->producer;
      if (!node) {
        needed_ends_.insert(value);
      } else if (of_tangents_.count(value) || !forward_.count(value) || graph::is_view(node->op)) {
        // a view costs nothing; saved, it would be a second look at memory that others may write to
        inside_.insert(node);
        graph::for_each_use(*node, [&](const Value* operand) { left.push_back(operand); });
      } else {
        saved_.insert(value);
      }
    }
  }

  void build_forward(const std::vector<Value*>& outputs) {
    Copies copies;
    for (size_t i = 0; i < joint_.num_primals; ++i)
      graph::copy_input(halves_.forward, joint_.graph.inputs()[i], copies);
    for (const auto& constant : joint_.graph.constants()) graph::copy_constant(halves_.forward, constant, copies);
    std::vector<Value*> results;
    for (const auto& node : joint_.graph.nodes()) {
      bool needed = graph::has_order(*node);
      for (const Value* result : node->results) needed |= forward_.count(result) != 0;
      if (needed) graph::copy_node(halves_.forward, *node, copies);
    }
    std::unordered_map<const Value*, size_t> places;  // of outputs
    for (const Value* output : outputs) {
      places.emplace(output, results.size());
      results.push_back(copies.at(output));
    }
    for (const auto& node : joint_.graph.nodes())
      for (Value* result : node->results)
        if (saved_.count(result)) {
          saved_in_order_.push_back(result);
          results.push_back(copies.at(result));
          const auto output = places.find(result);
          halves_.output_of_saved.push_back(output == places.end() ? std::nullopt : std::optional(output->second));
        }
    halves_.num_saved = saved_in_order_.size();
    halves_.forward.set_outputs(std::move(results));
  }

  void build_backward(const std::vector<Value*>& gradients) {
    Graph& backward = halves_.backward;
    Copies copies;
    const auto& inputs = joint_.graph.inputs();
    for (size_t i = 0; i < joint_.num_primals; ++i) {
      if (!needed_ends_.count(inputs[i].value)) continue;
      graph::copy_input(backward, inputs[i], copies);
      halves_.saved_primals.push_back(i);
    }
    for (const Value* saved : saved_in_order_) {
      Value* copy = backward.add_input("saved" + std::to_string(saved->id), graph::InputKind::tensor, saved->meta);
      backward.edit(copy).is_flags = saved->is_flags;
      copies[saved] = copy;
    }
    for (size_t i = joint_.num_primals; i < inputs.size(); ++i) graph::copy_input(backward, inputs[i], copies);
    for (const auto& constant : joint_.graph.constants()) graph::copy_constant(backward, constant, copies);
    for (const auto& node : joint_.graph.nodes())
      if (inside_.count(node.get()) && of_tangents_.count(node->results[0])) copy_with_operands(*node, copies);
    for (const Value* gradient : gradients)
      if (gradient->producer) copy_with_operands(*gradient->producer, copies);
    std::vector<Value*> results;
    for (const Value* gradient : gradients) results.push_back(copies.at(gradient));
    backward.set_outputs(std::move(results));
  }

  /// What the forward half computes as well comes just before what reads it here: so it stays with the call of a region
  /// that both belong to.
  void copy_with_operands(const Node& asked, Copies& copies) {
    std::vector<const Node*> left{&asked};
    const auto is_done = [&](const Node& node) { return !inside_.count(&node) || copies.count(node.results[0]); };
    while (!left.empty()) {
      const Node& node = *left.back();
      std::vector<const Node*> before;  // the first is copied first
      if (!is_done(node))
        graph::for_each_use(node, [&](const Value* value) {
          if (value->producer && !is_done(*value->producer)) before.push_back(value->producer);
        });
      if (!before.empty()) {
        left.insert(left.end(), before.rbegin(), before.rend());
        continue;
      }
      if (!is_done(node)) graph::copy_node(halves_.backward, node, copies);
      left.pop_back();
    }
  }

  const Joint& joint_;
  const bool folds_;
  Halves halves_;
  Values forward_, of_tangents_, wanted_, needed_ends_, saved_;
  std::unordered_set<const Node*> inside_;
  std::vector<const Value*> saved_in_order_;
};

}  // namespace

Halves partition(const Joint& joint, bool folds) { return Partitioner(joint, folds).run(); }

}  // namespace triage::aot
