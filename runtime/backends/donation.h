#pragma once
#include <ATen/core/Tensor.h>
#include <triage/backend.h>

#include <algorithm>

namespace triage {

/// The inputs of the call that runs on this thread which their owner gives up: their memory may become that of outputs. It holds
/// for the one graph that answers the whole call; a part of it, or code that a script runs, may need the inputs again.
class Donation {
 public:
  explicit Donation(at::ArrayRef<at::Tensor> tensors) : outer_(current_), tensors_(tensors) { current_ = this; }
  ~Donation() { current_ = outer_; }
  Donation(const Donation&) = delete;
  Donation& operator=(const Donation&) = delete;

  /// Who calls a graph says so: it is for this one, or for none, whatever is called inside.
  static void address(const Executable* graph) noexcept {
    if (!current_ || current_->addressed_) return;
    current_->addressed_ = true;
    current_->graph_ = graph;
  }

  /// What is given to `graph`; empty where that is nothing.
  static at::ArrayRef<at::Tensor> to(const Executable* graph) noexcept {
    return current_ && current_->graph_ == graph ? current_->tensors_ : at::ArrayRef<at::Tensor>();
  }

 private:
  inline static thread_local Donation* current_ = nullptr;
  Donation* outer_;
  at::ArrayRef<at::Tensor> tensors_;
  const Executable* graph_ = nullptr;
  bool addressed_ = false;
};

}  // namespace triage
