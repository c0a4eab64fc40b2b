#pragma once
#include <triage/backend.h>

#include "runtime/backends/fused/fusion_groups.h"
#include "runtime/operators/contract.h"

namespace triage::fused {

/// A call of an elementwise operator of ATen on what another part made and nobody reads any more: its form that writes
/// to the first argument gives the same bits, in the memory that is there.
class InPlaceCall final : public Executable {
 public:
  /// Whether the operator has such a form, and its result the sizes and the dtype of the first argument.
  static bool takes(const graph::Node& node);
  /// `part` is one such call.
  explicit InPlaceCall(const FusionGroup& part);
  /// Writes to the first argument where it is among those that `call` donates, and the tensors are such as they were at
  /// capture.
  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const override;
  size_t bytes() const override { return sizeof(*this) + interpreter_->bytes(); }

 private:
  bool can_run(at::ArrayRef<at::Tensor> inputs, const CallContext& call) const;

  graph::Graph graph_;
  std::unique_ptr<Executable> interpreter_;
  c10::OperatorHandle op_;
};

}  // namespace triage::fused
