// Where a gradient became bad: of a captured graph, of a TorchScript model, of what has been computed.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/jit/ir/ir.h>
#include <triage/provenance.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <unordered_map>

#include "runtime/capture/force_eager.h"
#include "runtime/capture/graph_break.h"
#include "runtime/diagnose/gradients/places.h"
#include "runtime/diagnose/gradients/walk.h"
#include "runtime/diagnose/script_graph.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/output_names.h"

namespace triage {
namespace {

using diagnose::GradientWalk;
using diagnose::NamedTensor;
using diagnose::NotePlaces;

bool has_gradient(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.is_floating_point() || tensor.is_complex()) && !tensor.is_quantized();
}

/// A leaf of its own, whatever the tensor is a part of.
at::Tensor as_leaf(const at::Tensor& tensor) {
  return has_gradient(tensor) ? tensor.detach().requires_grad_(true) : tensor;
}

/// Back from those outputs that have a gradient.
Provenance walk_back(const std::vector<NamedTensor>& outputs, at::ArrayRef<at::Tensor> gradients,
                     const std::vector<NamedTensor>& leaves, int64_t samples) {
  if (!gradients.empty() && gradients.size() != outputs.size())
    throw InputError(fmt::format("gradient_provenance: expected a gradient for each of {} outputs, or none, got {}.",
                                 outputs.size(), gradients.size()));
  std::vector<NamedTensor> roots, ends;
  std::vector<at::Tensor> seeds;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor& output = outputs[i].tensor;
    const at::Tensor given = gradients.empty() ? at::Tensor() : gradients[i];
    const bool requires_grad = output.defined() && output.requires_grad();
    if (given.defined() && (!requires_grad || given.sizes() != output.sizes()))
      throw InputError(
          fmt::format("gradient_provenance: the gradient of {} has the shape [{}], and that output {}.",
                      outputs[i].name, fmt::join(given.sizes(), ", "),
                      requires_grad ? fmt::format("the shape [{}]", fmt::join(output.sizes(), ", ")) : "takes none"));
    if (!requires_grad) continue;
    roots.push_back(outputs[i]);
    seeds.push_back(given.defined() ? given : at::ones_like(output));
  }
  for (const NamedTensor& leaf : leaves)
    if (leaf.tensor.defined() && leaf.tensor.requires_grad()) ends.push_back(leaf);
  if (roots.empty() || ends.empty())
    throw InputError("gradient_provenance: expected an output that depends on a tensor with a gradient, got none.");
  return GradientWalk(samples).run(roots, seeds, ends);
}

}  // namespace

Provenance gradient_provenance(const graph::Graph& graph, at::ArrayRef<at::Tensor> inputs,
                               at::ArrayRef<at::Tensor> gradients) {
  if (inputs.size() != graph.inputs().size())
    throw InputError(fmt::format("gradient_provenance of graph `{}`: expected {} inputs, params included, got {}.",
                                 graph.name(), graph.inputs().size(), inputs.size()));
  graph::verify(graph);
  const at::AutoGradMode with_gradients(true);
  const graph::Node* running = nullptr;
  NotePlaces places([&](const std::string& name) {
    return Producer{Producer::Kind::operation, name, {}, running ? running->source : Source{}, {}, {}, {}};
  });
  std::unordered_map<const graph::Value*, at::Tensor> values;
  std::vector<NamedTensor> leaves, outputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const graph::Input& input = graph.inputs()[i];
    const at::Tensor& tensor = values[input.value] =
        input.kind == graph::InputKind::tensor && !input.value->is_flags ? as_leaf(inputs[i]) : inputs[i];
    leaves.push_back({input.value->name, tensor, /*is_data=*/true});
    places.note_data(tensor);
  }
  for (const graph::Constant& constant : graph.constants()) {
    values[constant.value] = constant.tensor.requires_grad() ? as_leaf(constant.tensor) : constant.tensor;
    leaves.push_back({constant.value->name, values[constant.value]});
  }
  for (const auto& node : graph.nodes()) {
    running = node.get();
    const auto results = graph::evaluate(*node, [&](const graph::Value* value) { return values.at(value); });
    for (size_t i = 0; i < results.size() && i < node->results.size(); ++i) values[node->results[i]] = results[i];
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i)
    outputs.push_back({graph::output_name(graph.output_names(), i), values.at(graph.outputs()[i])});
  const std::vector<c10::IValue> given(inputs.begin(), inputs.end());
  return walk_back(outputs, gradients, leaves, diagnose::count_samples(given, "gradient_provenance"));
}

namespace {

/// Says which operation of a TorchScript model runs.
class OperationObserver final : public diagnose::GraphObserver {
 public:
  /// What a model forks has no places.
  void observe(int64_t point, at::ArrayRef<c10::IValue> /*values*/) override {
    if (std::this_thread::get_id() == thread_) running_ = &operations.at(static_cast<size_t>(point));
  }
  Producer running(const std::string& name) const {
    if (running_) return *running_;
    return {Producer::Kind::operation, name, {}, {}, {}, {}, {}};
  }
  std::vector<Producer> operations;

 private:
  const std::thread::id thread_ = std::this_thread::get_id();
  const Producer* running_ = nullptr;
};

void watch_block(const diagnose::ScriptGraph& graph, torch::jit::Block* block, OperationObserver& watch) {
  const std::vector<torch::jit::Node*> nodes(block->nodes().begin(), block->nodes().end());
  for (torch::jit::Node* node : nodes) {
    for (torch::jit::Block* inner : node->blocks()) watch_block(graph, inner, watch);
    if (!diagnose::is_operation(*node)) continue;
    const auto point = static_cast<int64_t>(watch.operations.size());
    watch.operations.push_back(diagnose::described(*node));
    const torch::jit::WithInsertPoint before(node);
    diagnose::insert_observer(graph, point, {});
  }
}

}  // namespace

Provenance gradient_provenance(const torch::jit::Module& module, std::vector<c10::IValue> inputs,
                               at::ArrayRef<at::Tensor> gradients, const std::string& method) {
  const at::AutoGradMode with_gradients(true);
  const int64_t samples = diagnose::count_samples(inputs, "gradient_provenance");
  diagnose::ScriptGraph graph = diagnose::inline_calls(module, method, diagnose::Inline::everything);
  const auto watch = c10::make_intrusive<OperationObserver>();
  watch_block(graph, graph.graph->block(), *watch);
  NotePlaces places([&](const std::string& name) { return watch->running(name); });
  const auto& arguments = module.get_method(method).function().getSchema().arguments();
  std::vector<NamedTensor> leaves, outputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].isTensor()) inputs[i] = as_leaf(inputs[i].toTensor());
    diagnose::for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      places.note_data(tensor);
      leaves.push_back({i + 1 < arguments.size() ? arguments[i + 1].name() : std::to_string(i), tensor, true});
    });
  }
  for (const auto& parameter : module.named_parameters()) leaves.push_back({parameter.name, parameter.value});
  const c10::IValue returned = diagnose::ScriptFunction(module, method, graph)(std::move(inputs), {}, watch);
  diagnose::for_each_tensor(returned, [&](const at::Tensor& tensor) { outputs.push_back({"output", tensor}); });
  return walk_back(outputs, gradients, leaves, samples);
}

namespace {

/// The leaves that these depend on.
std::vector<NamedTensor> leaves_of(at::ArrayRef<at::Tensor> outputs) {
  std::vector<NamedTensor> leaves;
  std::vector<diagnose::NodeHandle> roots;
  for (const at::Tensor& output : outputs)
    if (output.defined() && output.requires_grad())
      roots.push_back(torch::autograd::impl::gradient_edge(output).function);
  diagnose::walk_nodes(std::move(roots), [&](const diagnose::NodeHandle& node) {
    if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node.get()))
      leaves.push_back({fmt::format("a leaf of shape [{}]", fmt::join(leaf->variable.sizes(), ", ")), leaf->variable});
    return true;
  });
  return leaves;
}

}  // namespace

Provenance gradient_provenance(at::ArrayRef<at::Tensor> outputs, at::ArrayRef<at::Tensor> gradients, int64_t samples) {
  if (samples < 0) throw InputError(fmt::format("gradient_provenance: expected samples >= 0, got {}.", samples));
  std::vector<NamedTensor> named;
  for (size_t i = 0; i < outputs.size(); ++i) {
    named.push_back({outputs.size() == 1 ? "the output" : fmt::format("output {}", i), outputs[i]});
    const auto node = outputs[i].defined() ? outputs[i].grad_fn() : nullptr;
    const diagnose::NodeOrigin* const place = node ? diagnose::place_of(*node) : nullptr;
    if (samples == 0 && place) samples = place->samples;
  }
  for (const at::Tensor& output : outputs)
    if (samples == 0 && output.defined() && output.dim() > 0) samples = output.size(0);
  return walk_back(named, gradients, leaves_of(outputs), std::max<int64_t>(samples, 1));
}

class GradientTrace::Notes {
  const capture::ForceEager force_eager;
  const NotePlaces places{[](const std::string& name) {
    return Producer{Producer::Kind::operation, name, {}, capture::ScriptScope::line(), {}, {}, {}};
  }};
};

GradientTrace::GradientTrace() : notes_(std::make_unique<Notes>()) {}
GradientTrace::~GradientTrace() = default;

}  // namespace triage
