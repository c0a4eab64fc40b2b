#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/jit_exception.h>

#include <mutex>

#include "runtime/diagnose/isolation/tensor_values.h"
#include "runtime/diagnose/script_graph.h"
#include "runtime/messages/debugging/verbose.h"

namespace triage::diagnose {
namespace {

/// An operation of the model, and how many of the values that are observed behind it are its results; arguments follow.
struct RecordedOperation {
  RecordedStep like;
  size_t results;
};

class ModelRecorder final : public GraphObserver {
 public:
  ModelRecorder(Recording& recording, const std::vector<RecordedOperation>& operations)
      : recording_(recording), values_(recording), operations_(operations) {}

  void take(const c10::IValue& input) {
    for_each_tensor(input, [&](const at::Tensor& tensor) { values_.add(tensor); });
  }

  void observe(int64_t point, at::ArrayRef<c10::IValue> observed) override {
    const std::lock_guard lock(mutex_);  // a model may fork
    const RecordedOperation& operation = operations_.at(static_cast<size_t>(point));
    RecordedStep step = operation.like;
    for (const c10::IValue& argument : observed.slice(operation.results))
      for_each_tensor(argument, [&](const at::Tensor& tensor) {
        // What was written to in place was read as it was before.
        const auto before = values_.find(tensor);
        step.reads.push_back(before ? *before : values_.add(tensor));
      });
    for (const c10::IValue& result : observed.slice(0, operation.results))
      for_each_tensor(result, [&](const at::Tensor& tensor) { step.results.push_back(values_.add(tensor)); });
    recording_.steps.push_back(std::move(step));
  }

  std::optional<size_t> find(const at::Tensor& tensor) const { return values_.find(tensor); }

 private:
  Recording& recording_;
  TensorValues values_;
  const std::vector<RecordedOperation>& operations_;
  std::mutex mutex_;
};

void watch_block(const ScriptGraph& graph, torch::jit::Block* block, std::vector<RecordedOperation>& operations) {
  std::vector<torch::jit::Node*> nodes;
  for (torch::jit::Node* node : block->nodes()) nodes.push_back(node);
  for (torch::jit::Node* node : nodes) {
    for (torch::jit::Block* inner : node->blocks()) watch_block(graph, inner, operations);
    if (!is_operation(*node)) continue;
    std::vector<torch::jit::Value*> observed;
    for (torch::jit::Value* value : node->outputs())
      if (holds_tensors(*value->type())) observed.push_back(value);
    const size_t results = observed.size();
    for (torch::jit::Value* value : node->inputs())
      if (holds_tensors(*value->type())) observed.push_back(value);
    const torch::jit::WithInsertPoint after(node->next());
    insert_observer(graph, static_cast<int64_t>(operations.size()), observed);
    RecordedStep like{operation_name(*node), {}, path_of(*node), source_of(*node), {}, {}};
    if (const c10::FunctionSchema* schema = node->maybeSchema()) like.is_view = is_view(*schema);
    operations.push_back({std::move(like), results});
  }
}

void add_named(const c10::IValue& value, const std::string& name,
               std::vector<std::pair<std::string, at::Tensor>>& found) {
  if (value.isTensor()) {
    found.emplace_back(name, value.toTensor());
  } else if (value.isTuple() || value.isList()) {
    size_t i = 0;
    const auto items = value.isTuple() ? value.toTupleRef().elements().vec() : value.toListRef().vec();
    for (const c10::IValue& item : items) add_named(item, fmt::format("{}.{}", name, i++), found);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      const c10::IValue& key = entry.key();
      add_named(entry.value(),
                fmt::format("{}.{}", name, key.isString() ? key.toStringRef() : fmt::format("{}", found.size())),
                found);
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, at::Tensor>> named_tensors(const c10::IValue& value, const std::string& name) {
  std::vector<std::pair<std::string, at::Tensor>> found;
  add_named(value, name, found);
  return found;
}

Recording record(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs, const std::string& method) {
  const at::NoGradGuard no_grad;
  ScriptGraph graph = inline_calls(module, method, Inline::everything);
  std::vector<RecordedOperation> operations;
  watch_block(graph, graph.graph->block(), operations);
  Recording recording;
  const auto recorder = c10::make_intrusive<ModelRecorder>(recording, operations);
  for (const c10::IValue& input : inputs) recorder->take(input);
  try {
    const c10::IValue output = ScriptFunction(module, method, graph)(inputs, {}, recorder);
    for (const auto& [name, tensor] : named_tensors(output, "output"))
      recording.outputs.push_back(recorder->find(tensor));
  } catch (const std::exception& error) {
    recording.failure = messages::message_of(error);
    // A `raise` of the model is no operator.
    recording.raised_by_next = dynamic_cast<const torch::jit::JITException*>(&error) == nullptr;
  }
  return recording;
}

}  // namespace triage::diagnose
