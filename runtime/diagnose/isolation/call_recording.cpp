#include <ATen/core/dispatch/Dispatcher.h>

#include "runtime/diagnose/isolation/tensor_values.h"
#include "runtime/diagnose/operator_watch.h"
#include "runtime/diagnose/script_graph.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/operators/semantics.h"

namespace triage::diagnose {
namespace {

class CallRecorder {
 public:
  CallRecorder(Recording& recording, const std::vector<at::Tensor>& inputs, std::function<Source()> line)
      : recording_(recording), values_(recording), line_(std::move(line)) {
    for (const at::Tensor& input : inputs) values_.add(input);
    watch_.emplace([this](const at::RecordFunction& call, const c10::OperatorName& name) { return begin(call, name); },
                   [this](size_t step, const at::RecordFunction& call) { end(step, call); });
  }

  std::optional<size_t> find(const at::Tensor& tensor) const { return values_.find(tensor); }

 private:
  size_t begin(const at::RecordFunction& call, const c10::OperatorName& name) {
    RecordedStep step;
    step.op = name.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
    if (const auto op = c10::Dispatcher::singleton().findSchema(name)) step.is_view = is_view(op->schema());
    if (line_) step.source = line_();
    for (const c10::IValue& input : call.inputs())
      for_each_tensor(input, [&](const at::Tensor& tensor) { step.reads.push_back(values_.of(tensor)); });
    recording_.steps.push_back(std::move(step));
    return recording_.steps.size() - 1;
  }
  void end(size_t step, const at::RecordFunction& call) {
    std::vector<size_t>& results = recording_.steps[step].results;
    for (const c10::IValue& output : call.outputs())
      for_each_tensor(output, [&](const at::Tensor& tensor) { results.push_back(values_.add(tensor)); });
    const auto op = c10::Dispatcher::singleton().findSchema(*call.operator_name());
    const bool gives_flags = op && operators::semantics_of(*op).has(operators::Semantics::gives_flags);
    if (gives_flags && !results.empty()) recording_.values[results.back()].is_flags = true;
  }

  Recording& recording_;
  TensorValues values_;
  std::function<Source()> line_;
  std::optional<OperatorWatch> watch_;
};

}  // namespace

Recording record_calls(const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& call,
                       const std::vector<at::Tensor>& inputs, std::function<Source()> line) {
  Recording recording;
  CallRecorder recorder(recording, inputs, std::move(line));
  try {
    const std::vector<at::Tensor> outputs = call(inputs);
    for (const at::Tensor& output : outputs) recording.outputs.push_back(recorder.find(output));
  } catch (const std::exception& error) {
    recording.failure = messages::message_of(error);
  }
  return recording;
}

}  // namespace triage::diagnose
