#pragma once
#include <triage/backend.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/backends/fused/fusion_groups.h"

namespace triage::fused {

class StepTimes;

/// A part of a graph that loops compute, where they can: else the interpreter.
class LoopGroup : public Executable {
 public:
  /// Runs the loops, else the interpreter. False where that had to serve since the loops were made for other inputs. `times`:
  /// null, or what is to be told of a tape.
  virtual bool run_loops(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call,
                         StepTimes* times) const = 0;
  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const final {
    run_loops(inputs, outputs, {call.deadline}, nullptr);
  }
  size_t spared_calls() const final { return operators_ - 1; }
  const std::vector<std::string>& lines() const { return loops_.lines; }

 protected:
  LoopGroup(const FusionGroup& part, std::unique_ptr<Executable> interpreter);

  /// Whether results of ATen may lie in another order in memory than those of loops, and random numbers are drawn in it.
  bool order_matters(at::ArrayRef<at::Tensor> inputs) const;

  const std::string graph_;  // its name, for messages
  const std::string label_;  // for spans
  const Loops loops_;
  const size_t operators_;
  const bool keeps_order_;
  const std::unique_ptr<Executable> interpreter_;
};

}  // namespace triage::fused
