#include "runtime/backends/fused/fused.h"

#include <ATen/ATen.h>

#include <unordered_map>

#include "runtime/backends/eager.h"
#include "runtime/backends/fused/region.h"

namespace triage {
namespace {

using graph::Graph;
using graph::Value;

constexpr size_t most_nodes = 2000;  // cutting looks at every node many times

/// Parts that run one after the other on a file of registers: the inputs and constants of the graph, and what parts made.
class Parts final : public Executable {
 public:
  Parts(const Graph& graph, const std::vector<fused::Part>& parts) {
    for (const auto& input : graph.inputs()) add(input.value);
    for (const auto& constant : graph.constants()) {
      add(constant.value);
      constants_.push_back(constant.tensor);
    }
    for (const auto& part : parts) {
      Step step;
      for (const Value* value : part.inputs) step.inputs.push_back(registers_.at(value));
      for (const Value* value : part.outputs) step.outputs.push_back(add(value));
      if (part.fused)
        step.run = std::make_unique<fused::Region>(part);
      else
        step.run = compile_eager(part.graph, {});
      steps_.push_back(std::move(step));
    }
    for (const Value* value : graph.outputs()) outputs_.push_back(registers_.at(value));
    num_inputs_ = graph.inputs().size();
    count_ = registers_.size();
    registers_.clear();
    whole_ = steps_.size() == 1 && steps_[0].outputs == outputs_ && takes_the_inputs(steps_[0]);
  }

  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs) const override {
    if (inputs.size() != num_inputs_)
      throw InputError("the graph takes " + std::to_string(num_inputs_) + " inputs, got " +
                       std::to_string(inputs.size()));
    if (whole_) return steps_[0].run->run(inputs, outputs);
    std::vector<at::Tensor> file(inputs.begin(), inputs.end());
    file.insert(file.end(), constants_.begin(), constants_.end());
    file.resize(count_);
    std::vector<at::Tensor> given, made;
    for (const Step& step : steps_) {
      given.clear(), made.clear();
      for (const size_t at : step.inputs) given.push_back(file[at]);
      step.run->run(given, made);
      for (size_t i = 0; i < made.size(); ++i) file[step.outputs[i]] = std::move(made[i]);
    }
    for (const size_t at : outputs_) outputs.push_back(is_constant(at) ? file[at].clone() : file[at]);
  }

  void finish_compiling() const override {
    for (const Step& step : steps_) step.run->finish_compiling();
  }

 private:
  struct Step {
    std::unique_ptr<Executable> run;
    std::vector<size_t> inputs, outputs;  // registers
  };
  /// The graph's inputs, all and in order?
  bool takes_the_inputs(const Step& step) const {
    bool same = step.inputs.size() == num_inputs_;
    for (size_t i = 0; same && i < num_inputs_; ++i) same = step.inputs[i] == i;
    return same;
  }
  size_t add(const Value* value) { return registers_.emplace(value, registers_.size()).first->second; }
  bool is_constant(size_t at) const { return at >= num_inputs_ && at < num_inputs_ + constants_.size(); }

  std::unordered_map<const Value*, size_t> registers_;
  size_t num_inputs_ = 0, count_ = 0;
  std::vector<at::Tensor> constants_;
  std::vector<Step> steps_;
  std::vector<size_t> outputs_;
  bool whole_ = false;  // the one step is everything: the call goes straight to it
};

bool on_cpu_without_grad(const Graph& graph, const std::vector<at::Tensor>& examples) {
  const auto fits = [](const at::Tensor& tensor) {
    return tensor.device().is_cpu() && !(at::GradMode::is_enabled() && tensor.requires_grad());
  };
  for (const auto& example : examples)
    if (!fits(example)) return false;
  for (const auto& constant : graph.constants())
    if (!fits(constant.tensor)) return false;
  return true;
}

}  // namespace

std::unique_ptr<Executable> compile_fused(const Graph& graph, const std::vector<at::Tensor>& examples) {
  if (graph.nodes().size() > most_nodes || !on_cpu_without_grad(graph, examples)) return compile_eager(graph, examples);
  graph::verify(graph);
  const std::vector<fused::Part> parts = fused::cut(graph);
  bool any = false;
  for (const auto& part : parts) any |= part.fused;
  if (!any) return compile_eager(graph, examples);
  return std::make_unique<Parts>(graph, parts);
}

}  // namespace triage
