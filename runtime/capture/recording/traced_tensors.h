#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <triage/graph.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/capture/tensors/identity.h"

namespace triage::capture {

/// Which value of the graph each tensor of a capture stands for.
class TracedTensors {
 public:
  struct Traced {
    std::optional<TensorIdentity> identity;  // always there: keeps the key's address unique
    std::optional<TensorIdentity> original;  // as `original` below
    graph::Value* value = nullptr;
    int branch = 0;  // depth of branches it was made at; -1: it was there before
    bool is_param = false;
    bool is_input = false;
  };
  explicit TracedTensors(graph::Graph& graph) : graph_(graph) {}

  /// Null where the tensor is neither an input nor was made or used during this capture.
  const Traced* trace(const at::Tensor& tensor) const {
    const auto found = traced_.find(tensor.unsafeGetTensorImpl());
    return found == traced_.end() ? nullptr : &found->second;
  }
  bool knows(const at::Tensor& tensor) const { return trace(tensor); }
  bool is_flags(const at::Tensor& tensor) const { return knows(tensor) && trace(tensor)->value->is_flags; }
  bool is_param(const at::Tensor& tensor) const { return knows(tensor) && trace(tensor)->is_param; }
  /// An input, or computed during this capture.
  bool is_captured(const at::Tensor& tensor) const { return knows(tensor) && trace(tensor)->branch >= 0; }
  const graph::Value* find(const at::Tensor& tensor) const {
    const Traced* found = trace(tensor);
    return found ? found->value : nullptr;
  }
  /// The tensor that the script has where this one is recorded: the caller's own input, or what an operator handed back
  /// as it is. Undefined where that is the same one.
  at::Tensor original(const at::Tensor& tensor) const {
    const Traced* found = trace(tensor);
    return found && found->original ? found->original->tensor() : at::Tensor();
  }
  /// The tensor that stood for the value last, where it is still there.
  at::Tensor tensor_of(const graph::Value* value) const;
  /// Whether `tensor` shares memory with another tensor of this capture, so that a write to it cannot be captured.
  bool shares_memory(const at::Tensor& tensor) const;
  const std::vector<at::Tensor>& inputs() const { return inputs_; }

  /// The script made a tensor of numbers that stand in it: nobody else can change it. Any other tensor that no operator
  /// of the capture gave is a variable of the graph.
  void add_literal(const at::Tensor& tensor) { literals_[tensor.unsafeGetTensorImpl()] = tensor; }
  bool is_literal(const at::Tensor& tensor) const { return literals_.count(tensor.unsafeGetTensorImpl()) != 0; }

  at::Tensor add_input(const std::string& name, graph::InputKind kind, const at::Tensor& tensor);
  graph::Value* value_of(const at::Tensor& tensor);
  graph::Operand operand_of(const c10::IValue& value);
  /// `tensor` is the result `value` of an operator, made in so many branches.
  void bind(at::Tensor& tensor, graph::Value* value, int branch);
  /// `tensor` was written to, and stands for `value` from now on.
  void rebind(const at::Tensor& tensor, graph::Value* value);
  void forget(const at::Tensor& tensor) { traced_.erase(tensor.unsafeGetTensorImpl()); }
  /// The call itself, behind a graph break: on the caller's tensors, not on what stood for them here.
  void call_with_originals(const c10::OperatorHandle& op, torch::jit::Stack& stack) const;

 private:
  Traced& enter(const at::Tensor& tensor, graph::Value* value);

  graph::Graph& graph_;
  std::unordered_map<const c10::TensorImpl*, Traced> traced_;
  std::unordered_map<const graph::Value*, const c10::TensorImpl*> impls_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> literals_;
  std::vector<at::Tensor> inputs_;
};

}  // namespace triage::capture
