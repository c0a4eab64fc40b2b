#include <ATen/ATen.h>

#include <unordered_map>

#include "runtime/diagnose/isolation/recording.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/text/describe.h"
#include "runtime/messages/debugging/verbose.h"

namespace triage::diagnose {
namespace {

class GraphRecorder {
 public:
  GraphRecorder(const graph::Graph& graph, at::ArrayRef<at::Tensor> inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) add(graph.inputs()[i].value, inputs[i]);
    for (const graph::Constant& constant : graph.constants()) add(constant.value, constant.tensor);
  }

  void run(const graph::Node& node) {
    RecordedStep step{graph::op_name(node.op), graph::print(node), {}, node.source, {}, {}, is_view(node.op.schema())};
    for (const graph::Operand& operand : node.operands) read(operand, step.reads);
    recording_.steps.push_back(std::move(step));
    const std::vector<at::Tensor> results = graph::evaluate(
        node, [this](const graph::Value* value) { return recording_.values[places_.at(value)].tensor; });
    for (size_t i = 0; i < results.size() && i < node.results.size(); ++i)
      if (node.results[i]) recording_.steps.back().results.push_back(add(node.results[i], results[i]));
  }

  Recording finish(const graph::Graph& graph) && {
    for (const graph::Value* output : graph.outputs()) {
      const auto place = places_.find(output);
      recording_.outputs.push_back(place == places_.end() ? std::nullopt : std::optional(place->second));
    }
    return std::move(recording_);
  }
  void fail(const std::string& message) { recording_.failure = message; }

 private:
  size_t add(const graph::Value* value, const at::Tensor& tensor) {
    places_[value] = recording_.values.size();
    recording_.values.push_back({tensor, value->is_flags});
    return recording_.values.size() - 1;
  }
  void read(const graph::Operand& operand, std::vector<size_t>& reads) const {
    if (const graph::Value* value = operand.value()) {
      reads.push_back(places_.at(value));
    } else if (const auto* items = operand.list()) {
      for (const graph::Operand& item : *items) read(item, reads);
    }
  }

  Recording recording_;
  std::unordered_map<const graph::Value*, size_t> places_;
};

}  // namespace

Recording record(const graph::Graph& graph, at::ArrayRef<at::Tensor> inputs) {
  const at::NoGradGuard no_grad;
  GraphRecorder recorder(graph, inputs);
  try {
    for (const auto& node : graph.nodes()) recorder.run(*node);
  } catch (const std::exception& error) {
    recorder.fail(messages::message_of(error));
  }
  return std::move(recorder).finish(graph);
}

}  // namespace triage::diagnose
