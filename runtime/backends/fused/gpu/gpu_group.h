#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "runtime/backends/fused/gpu/accelerator.h"
#include "runtime/backends/fused/gpu/gpu_kernel.h"
#include "runtime/backends/fused/parts/loop_group.h"
#include "runtime/backends/fused/parts/row_views.h"

namespace triage::fused {

/// Whether loops of the group can run on the device of its tensors.
bool can_be_gpu_group(const FusionGroup& part);

/// A fused group on a GPU: one kernel, where it is there and the inputs are such as it was made for, else the
/// interpreter. Outputs come from LibTorch's allocator for the device.
class GpuGroup final : public LoopGroup {
 public:
  /// `can_be_gpu_group(part)` holds.
  GpuGroup(const FusionGroup& part, c10::Device device);
  bool run_row_major(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call,
                     StepTimes* times) const override;
  void finish_compiling() const override;
  LoopTiers loops() const override;
  size_t bytes() const override { return sizeof(*this) + interpreter_->bytes(); }

 private:
  /// The loops with one choice of lanes; compiled when a call first could use them.
  struct GpuKernelVersion {
    std::once_flag once;
    std::shared_ptr<const GpuKernel> kernel;
    bool joins = false;
    std::atomic<bool> asked{false};
  };
  Lanes captured() const;
  const GpuKernelVersion& version(Lanes lanes) const;
  GpuGrid grid_of(const RowLayout& rows, bool joins) const;
  void launch(const GpuKernelVersion& version, const CallLayout& layout, const RowLayout& rows,
              at::ArrayRef<at::Tensor> outputs) const;

  const c10::Device device_;
  const RowViews views_;
  const bool has_clusters_;
  mutable std::array<GpuKernelVersion, 3> versions_;  // one for each of Lanes
};

}  // namespace triage::fused
