#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include "runtime/diagnose/isolation/tensor_values.h"
#include "runtime/diagnose/script_graph.h"
#include "runtime/messages/debugging/verbose.h"

namespace triage::diagnose {
namespace {

/// An operator inside another is no step.
struct Call final : at::ObserverContext {
  std::optional<size_t> step;
};

class CallRecorder;
thread_local CallRecorder* current = nullptr;  // callbacks of LibTorch are plain functions

class CallRecorder {
 public:
  CallRecorder(Recording& recording, const std::vector<at::Tensor>& inputs, std::function<Source()> line)
      : recording_(recording), values_(recording), line_(std::move(line)) {
    for (const at::Tensor& input : inputs) values_.add(input);
    current = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(opened, closed)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~CallRecorder() {
    at::removeCallback(handle_);
    current = nullptr;
  }
  CallRecorder(const CallRecorder&) = delete;
  CallRecorder& operator=(const CallRecorder&) = delete;

  std::optional<size_t> find(const at::Tensor& tensor) const { return values_.find(tensor); }

 private:
  static std::unique_ptr<at::ObserverContext> opened(const at::RecordFunction& function) {
    auto call = std::make_unique<Call>();
    if (current->depth_++ == 0) call->step = current->begin(function);
    return call;
  }
  static void closed(const at::RecordFunction& function, at::ObserverContext* context) {
    --current->depth_;
    if (const auto step = static_cast<Call*>(context)->step) current->end(*step, function);
  }

  std::optional<size_t> begin(const at::RecordFunction& function) {
    const auto name = function.operator_name();
    if (!name) return std::nullopt;
    const Pause pause(*this);
    Step step;
    step.op = name->name + (name->overload_name.empty() ? "" : "." + name->overload_name);
    if (const auto op = c10::Dispatcher::singleton().findSchema(*name)) step.is_view = is_view(op->schema());
    if (line_) step.source = line_();
    for (const c10::IValue& input : function.inputs())
      for_each_tensor(input, [&](const at::Tensor& tensor) { step.reads.push_back(values_.of(tensor)); });
    recording_.steps.push_back(std::move(step));
    return recording_.steps.size() - 1;
  }
  void end(size_t step, const at::RecordFunction& function) {
    const Pause pause(*this);
    for (const c10::IValue& output : function.outputs())
      for_each_tensor(output,
                      [&](const at::Tensor& tensor) { recording_.steps[step].results.push_back(values_.add(tensor)); });
  }

  /// Copies that it makes are no steps.
  struct Pause {
    explicit Pause(CallRecorder& recorder) : recorder(recorder) { ++recorder.depth_; }
    ~Pause() { --recorder.depth_; }
    CallRecorder& recorder;
  };

  Recording& recording_;
  TensorValues values_;
  std::function<Source()> line_;
  int depth_ = 0;
  at::CallbackHandle handle_ = 0;
  at::RecordFunctionGuard enabled_{true};
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
