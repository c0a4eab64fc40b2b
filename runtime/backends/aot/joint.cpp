#include "runtime/backends/aot/joint.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "runtime/graph/copy.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/evaluation/trace.h"
#include "runtime/graph/output_names.h"
#include "runtime/memory/overlap.h"

namespace triage::aot {
namespace {

using graph::Graph;
using graph::Value;

using Tensors = std::vector<at::Tensor>;

/// Called by autograd before a function of the backward run: what that calls is recorded as of the line that it is
/// derived from.
class SetTraceSource final : public torch::autograd::FunctionPreHook {
 public:
  explicit SetTraceSource(Source source) : source_(std::move(source)) {}
  Tensors operator()(const Tensors& gradients) override {
    graph::set_trace_source(source_);
    return gradients;
  }

 private:
  const Source source_;
};

/// Functions of the backward run whose line is known.
using KnownLines = std::unordered_set<const torch::autograd::Node*>;

/// What leads to `results`, and was not there before the operator of `source` was called, is derived from it.
void derive_from(const Tensors& results, const Source& source, KnownLines& known) {
  std::vector<torch::autograd::Node*> open;
  for (const at::Tensor& result : results)
    if (result.defined() && result.grad_fn()) open.push_back(result.grad_fn().get());
  while (!open.empty()) {
    torch::autograd::Node* const function = open.back();
    open.pop_back();
    const auto& next = function->next_edges();
    if (next.empty() || !known.insert(function).second) continue;  // without next ones it ends at a leaf
    function->add_pre_hook(std::make_unique<SetTraceSource>(source));
    for (const auto& edge : next)
      if (edge.function) open.push_back(edge.function.get());
  }
}

/// The graph call by call, so that each recorded operator knows its script line, backward as well.
Tensors run(const Graph& function, const Tensors& primals) {
  KnownLines known;
  std::unordered_map<const Value*, at::Tensor> values;
  for (size_t i = 0; i < primals.size(); ++i) values[function.inputs()[i].value] = primals[i];
  for (const auto& constant : function.constants()) values[constant.value] = constant.tensor;
  for (const auto& node : function.nodes()) {
    graph::set_trace_source(node->source, node->checks);
    Tensors results = graph::evaluate(*node, [&](const Value* value) { return values.at(value); });
    if (results.size() != node->results.size()) throw GraphError("an operator returned a different number of tensors");
    for (size_t i = 0; i < results.size(); ++i) values[node->results[i]] = results[i];
    derive_from(results, node->source, known);
  }
  graph::set_trace_source({});
  Tensors outputs;
  for (const Value* output : function.outputs()) outputs.push_back(values.at(output));
  return outputs;
}

/// Names of the function's inputs, and those of gradients, in place of numbers.
Graph named(const Graph& recorded, const Graph& function, const std::vector<std::string>& tangents,
            const std::vector<std::string>& outputs) {
  Graph graph(recorded.name());
  graph::Copies copies;
  for (size_t i = 0; i < recorded.inputs().size(); ++i) {
    const size_t num_primals = function.inputs().size();
    graph::Input input = recorded.inputs()[i];
    const std::string name = i < num_primals ? function.inputs()[i].value->name : tangents[i - num_primals];
    Value* copy = graph.add_input(name, input.kind, input.value->meta);
    copies[input.value] = copy;
  }
  for (const auto& constant : recorded.constants()) graph::copy_constant(graph, constant, copies);
  for (const auto& node : recorded.nodes()) graph::copy_node(graph, *node, copies);
  std::vector<Value*> values;
  for (const Value* output : recorded.outputs()) values.push_back(copies.at(output));
  graph.set_outputs(std::move(values), outputs);
  graph::eliminate_dead(graph);
  graph::verify(graph);
  return graph;
}

}  // namespace

Tensors as_leaves(const Tensors& primals) {
  Tensors leaves;
  for (const at::Tensor& primal : primals)
    leaves.push_back(primal.requires_grad() ? primal.detach().requires_grad_() : primal);
  return leaves;
}

Joint record_joint(const Graph& function, const Tensors& primals, const Tensors& tangents) {
  const Tensors leaves = as_leaves(primals);
  Tensors given = leaves, constants, wanted;
  std::vector<std::string> tangent_names;
  std::vector<std::string> output_names = graph::output_names(function.output_names(), function.outputs().size());
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (!tangents[i].defined()) continue;
    given.push_back(tangents[i].detach());
    tangent_names.push_back("grad_" + output_names[i]);
  }
  for (const auto& constant : function.constants()) constants.push_back(constant.tensor);

  Joint joint{Graph(),
              leaves.size(),
              function.outputs().size(),
              std::vector<bool>(leaves.size(), true),
              std::vector<bool>(leaves.size()),
              std::vector<bool>(leaves.size()),
              {}};
  const auto both = [&](const Tensors& inputs) {
    const c10::AutoGradMode record(true);
    const Tensors own(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(leaves.size()));
    Tensors results = run(function, own), roots, come_in, ends;
    size_t next = leaves.size();
    for (size_t i = 0; i < tangents.size(); ++i) {
      if (!tangents[i].defined()) continue;
      roots.push_back(results[i]);
      come_in.push_back(inputs[next++]);
    }
    for (const at::Tensor& primal : own)
      if (primal.requires_grad()) ends.push_back(primal);
    const Tensors gradients = torch::autograd::grad(roots, ends, come_in, false, false, /*allow_unused=*/true);
    graph::set_trace_source({});
    size_t end = 0;
    for (size_t i = 0; i < own.size(); ++i) {
      if (!own[i].requires_grad()) continue;
      const at::Tensor& gradient = gradients[end++];
      joint.has_gradient[i] = gradient.defined();
      if (!gradient.defined()) continue;
      joint.shares[i] = std::any_of(results.begin() + static_cast<std::ptrdiff_t>(joint.num_outputs), results.end(),
                                    [&](const at::Tensor& earlier) { return share_memory(gradient, earlier); });
      results.push_back(gradient);
      output_names.push_back("grad_" + function.inputs()[i].value->name);
    }
    return results;
  };
  const Graph recorded = graph::trace_primitives(both, given, constants, function.name());
  joint.graph = named(recorded, function, tangent_names, output_names);
  return joint;
}

}  // namespace triage::aot
