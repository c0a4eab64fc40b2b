#pragma once
#include <triage/backend.h>

#include <vector>

namespace triage::fused {

/// A part of a graph that loops compute.
class LoopGroup : public Executable {
 public:
  /// Runs the loops, else the interpreter. False where that had to serve since the loops were made for other inputs.
  virtual bool run_loops(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
                         const CallContext& call) const = 0;
  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const final {
    run_loops(inputs, outputs, {call.deadline});
  }
};

}  // namespace triage::fused
