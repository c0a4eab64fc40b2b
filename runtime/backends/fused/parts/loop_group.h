#pragma once
#include <triage/backend.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/backends/fused/fusion_groups.h"
#include "runtime/backends/fused/parts/result_orders.h"

namespace triage::fused {

class StepTimes;

/// A part of a graph that loops compute, where they can: else the interpreter.
class LoopGroup : public Executable {
 public:
  /// Runs the loops, else the interpreter. False where that had to serve since the loops were made for other inputs.
  /// `times`: null, or what is to be told of a tape.
  bool run_loops(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call,
                 StepTimes* times) const;
  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const final {
    run_loops(inputs, outputs, {call.deadline}, nullptr);
  }
  size_t spared_calls() const final { return operators_ - 1; }
  const std::vector<std::string>& lines() const { return loops_.lines; }

 protected:
  LoopGroup(const FusionGroup& part, std::unique_ptr<Executable> interpreter);

  /// The same, with results that are row-major where loops made them.
  virtual bool run_row_major(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call,
                             StepTimes* times) const = 0;

  const std::string graph_;  // its name, for messages
  const std::string label_;  // for spans
  const Loops loops_;
  const size_t operators_;
  const std::unique_ptr<Executable> interpreter_;

 private:
  const ResultOrders orders_;
};

}  // namespace triage::fused
