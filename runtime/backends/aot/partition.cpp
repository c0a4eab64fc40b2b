#include <unordered_set>

#include "runtime/backends/aot/joint.h"
#include "runtime/graph/copy.h"
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
  explicit Partitioner(const Joint& joint)
      : joint_(joint), halves_{Graph(joint.graph.name()), Graph(joint.graph.name() + "_backward"), {}, 0, {}} {}

  Halves run() {
    const auto& outputs = joint_.graph.outputs();
    const auto middle = outputs.begin() + static_cast<std::ptrdiff_t>(joint_.num_outputs);
    find_tangent_part();
    Values kept(outputs.begin(), middle);  // and what draws, in its order, whoever uses it
    for (const auto& node : joint_.graph.nodes())
      if (graph::is_random(node->op)) {
        for (const Value* result : node->results)
          if (of_tangents_.count(result))
            throw GraphError("the backward run of the graph draws random numbers", node->source);
        kept.insert(node->results.begin(), node->results.end());
      }
    forward_ = ancestors(joint_.graph, std::move(kept));
    for (auto gradient = middle; gradient != outputs.end(); ++gradient) want(*gradient);
    build_forward({outputs.begin(), middle});
    build_backward({middle, outputs.end()});
    graph::clean(halves_.forward);
    graph::clean(halves_.backward);
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

  /// Decides for a value that the backward graph needs: computed there, or saved.
  void want(const Value* value) {
    if (!wanted_.insert(value).second) return;
    const Node* node = value->producer;
    if (!node) {
      needed_ends_.insert(value);
    } else if (of_tangents_.count(value) || !forward_.count(value) || graph::is_view(node->op)) {
      // a view costs nothing; saved, it would be a second look at memory that others may write to
      inside_.insert(node);
      graph::for_each_use(*node, [&](const Value* operand) { want(operand); });
    } else {
      saved_.insert(value);
    }
  }

  void build_forward(const std::vector<Value*>& outputs) {
    Copies copies;
    for (size_t i = 0; i < joint_.num_primals; ++i)
      graph::copy_input(halves_.forward, joint_.graph.inputs()[i], copies);
    for (const auto& constant : joint_.graph.constants()) graph::copy_constant(halves_.forward, constant, copies);
    std::vector<Value*> results;
    for (const auto& node : joint_.graph.nodes()) {
      bool needed = false;
      for (const Value* result : node->results) needed |= forward_.count(result) != 0;
      if (needed) graph::copy_node(halves_.forward, *node, copies);
    }
    for (const Value* output : outputs) results.push_back(copies.at(output));
    for (const auto& node : joint_.graph.nodes())
      for (Value* result : node->results)
        if (saved_.count(result)) {
          saved_in_order_.push_back(result);
          results.push_back(copies.at(result));
          const auto output = std::find(outputs.begin(), outputs.end(), result);
          halves_.output_of_saved.push_back(output == outputs.end()
                                                ? std::nullopt
                                                : std::optional<size_t>(static_cast<size_t>(output - outputs.begin())));
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

  /// What the forward half computes as well comes just before what reads it here: so it stays with the call of a region that both
  /// belong to.
  void copy_with_operands(const Node& node, Copies& copies) {
    if (!inside_.count(&node) || copies.count(node.results[0])) return;
    graph::for_each_use(node, [&](const Value* value) {
      if (value->producer) copy_with_operands(*value->producer, copies);
    });
    graph::copy_node(halves_.backward, node, copies);
  }

  const Joint& joint_;
  Halves halves_;
  Values forward_, of_tangents_, wanted_, needed_ends_, saved_;
  std::unordered_set<const Node*> inside_;
  std::vector<const Value*> saved_in_order_;
};

}  // namespace

Halves partition(const Joint& joint) { return Partitioner(joint).run(); }

}  // namespace triage::aot
