#include "runtime/backends/fused/fused.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_map>

#include "runtime/backends/aot/aot_eager.h"
#include "runtime/backends/donation.h"
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
      if (part.fused) {
        auto region = std::make_unique<fused::Region>(part);
        whole_ = region.get();
        step.run = std::move(region);
      } else {
        step.run = compile_eager(part.graph, {});
      }
      steps_.push_back(std::move(step));
    }
    for (const Value* value : graph.outputs()) outputs_.push_back(registers_.at(value));
    num_inputs_ = graph.inputs().size();
    count_ = registers_.size();
    registers_.clear();
    if (steps_.size() != 1 || !makes_all_outputs(steps_[0]) || !reads_all_inputs(steps_[0])) whole_ = nullptr;
    direct_ = whole_ && steps_[0].outputs == outputs_ && takes_the_inputs(steps_[0]);
    find_last_uses();
  }

  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs) const override {
    if (inputs.size() != num_inputs_)
      throw InputError("the graph takes " + std::to_string(num_inputs_) + " inputs, got " +
                       std::to_string(inputs.size()));
    if (direct_) return whole_->run(inputs, Donation::to(this), outputs);
    std::vector<at::Tensor> file(inputs.begin(), inputs.end());
    file.insert(file.end(), constants_.begin(), constants_.end());
    file.resize(count_);
    std::vector<at::Tensor> given, made;
    for (const Step& step : steps_) {
      given.clear(), made.clear();
      for (const size_t at : step.inputs) given.push_back(file[at]);
      if (whole_)
        whole_->run(given, Donation::to(this), made);
      else
        step.run->run(given, made);
      for (size_t i = 0; i < made.size(); ++i) file[step.outputs[i]] = std::move(made[i]);
      for (const size_t at : step.done) file[at].reset();
    }
    for (const size_t at : outputs_) outputs.push_back(is_constant(at) ? file[at].clone() : file[at]);
  }

  void finish_compiling() const override {
    for (const Step& step : steps_) step.run->finish_compiling();
  }
  size_t bytes() const override {
    size_t bytes = sizeof(*this) + steps_.capacity() * sizeof(Step);
    for (const Step& step : steps_) bytes += step.run->bytes();
    return bytes;
  }

 private:
  struct Step {
    std::unique_ptr<Executable> run;
    std::vector<size_t> inputs, outputs;  // registers
    std::vector<size_t> done;             // what nobody reads after it
  };
  void find_last_uses() {
    std::vector<bool> used(count_);
    for (const size_t at : outputs_) used[at] = true;
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step)
      for (const auto* list : {&step->inputs, &step->outputs})
        for (const size_t at : *list) {
          if (!used[at]) step->done.push_back(at);
          used[at] = true;
        }
  }
  static bool has(const std::vector<size_t>& list, size_t at) {
    return std::find(list.begin(), list.end(), at) != list.end();
  }
  bool makes_all_outputs(const Step& step) const {
    return std::all_of(outputs_.begin(), outputs_.end(), [&](size_t at) { return has(step.outputs, at); });
  }
  bool reads_all_inputs(const Step& step) const {
    for (size_t i = 0; i < num_inputs_; ++i)
      if (!has(step.inputs, i)) return false;
    return true;
  }
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
  const fused::Region* whole_ = nullptr;  // where one step is everything
  bool direct_ =
      false;  // then, where it takes the inputs and gives the outputs as they stand: the call goes straight to it
};

template <class Test>
bool any_tensor(const Graph& graph, const std::vector<at::Tensor>& examples, const Test& test) {
  const auto& constants = graph.constants();
  return std::any_of(examples.begin(), examples.end(), test) ||
         std::any_of(constants.begin(), constants.end(), [&](const auto& constant) { return test(constant.tensor); });
}

std::unique_ptr<Executable> compile_parts(const Graph& graph, const std::vector<at::Tensor>& examples) {
  const fused::KernelsFor naming(graph.name());
  if (graph.nodes().size() > most_nodes) return compile_eager(graph, examples);
  graph::verify(graph);
  const std::vector<fused::Part> parts = fused::cut(graph);
  bool any = false;
  for (const auto& part : parts) any |= part.fused;
  if (!any) return compile_eager(graph, examples);
  return std::make_unique<Parts>(graph, parts);
}

}  // namespace

std::unique_ptr<Executable> compile_fused(const Graph& graph, const std::vector<at::Tensor>& examples) {
  if (any_tensor(graph, examples, [](const at::Tensor& tensor) { return !tensor.device().is_cpu(); }))
    return compile_eager(graph, examples);
  if (at::GradMode::is_enabled() &&
      any_tensor(graph, examples, [](const at::Tensor& tensor) { return tensor.requires_grad(); }))
    return compile_joint(graph, examples, "fused", compile_parts);
  return compile_parts(graph, examples);
}

}  // namespace triage
