#pragma once
#include <triage/backend.h>

#include <atomic>

#include "runtime/backends/fused/fusion_groups.h"
#include "runtime/backends/fused/parts/output_pool.h"
#include "runtime/operators/contract.h"

namespace triage::fused {

/// A call of ATen whose result goes into pooled memory: its `out` variant writes it there. What the call is not made
/// for (small results, gradients, autocast, other dtypes) is the interpreter's, and so is a call that is out of its
/// contract: it says so.
class PooledCall final : public Executable {
 public:
  /// Whether ATen computes this operator in the same way into memory that it is given.
  static bool takes(const graph::Node& node);
  /// `part` has one such call, its last node, and views of what the call reads.
  PooledCall(const FusionGroup& part, OutputPool& pool);
  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const override;
  size_t bytes() const override { return sizeof(*this) + interpreter_->bytes(); }

 private:
  bool can_run(at::ArrayRef<at::Tensor> inputs) const;
  bool is_held(const std::vector<c10::IValue>& arguments, const CallContext& call) const;

  graph::Graph graph_;
  std::unique_ptr<Executable> interpreter_;
  c10::OperatorHandle op_;
  const operators::Contract* contract_;  // of the operator without `out`; null: it has none
  OutputPool& pool_;
  mutable std::atomic<size_t> last_bytes_{0};  // of a result
};

}  // namespace triage::fused
