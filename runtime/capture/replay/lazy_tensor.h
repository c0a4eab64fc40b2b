#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/capture/replay/trace_tree.h"

/// Tensors whose values come later: what a TraceReplayer hands to the script in place of results. Sizes, strides, dtype
/// and device are those of the result to come.
namespace triage::capture {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

/// A segment of one call that was followed: enough to compute any of its values. Shared by the lazy tensors of the
/// segment.
struct PendingSegment {
  std::shared_ptr<TraceTree> tree;  // owns the steps
  std::vector<TraceStep*> path;
  std::vector<at::Tensor> inputs;
  std::vector<WeakTensor> values;  // the lazy tensors that are still somebody's
  ThreadState state;
  TraceSegment* segment = nullptr;
  bool closed = false;                                  // its values can be asked for
  std::vector<uint32_t> versions;                       // of the inputs when it was closed
  std::vector<std::optional<uint32_t>> value_versions;  // of the values that had their data then

  /// Runs the steps with ATen, and fills every lazy tensor that has no data yet. `want`: from now on the compiled graph
  /// gives those. Throws where an input has been written to since.
  void compute(bool want = false);
  /// Whether values that are not there yet may be computed of the memory of `tensor`.
  bool looks_at(const at::Tensor& tensor) const;
  void note_versions();
};

class LazyTensor final : public c10::TensorImpl {
 public:
  LazyTensor(const ResultLayout& layout, std::shared_ptr<PendingSegment> pending, uint32_t value);
  ~LazyTensor() override;
  /// What only weak references keep must keep nothing itself: the segment, which refers to its values, would live for
  /// ever.
  void release_resources() override;
  LazyTensor(const LazyTensor&) = delete;
  LazyTensor& operator=(const LazyTensor&) = delete;

  /// Null for any other tensor, and for one that has its data.
  static LazyTensor* unfilled(const at::Tensor& tensor);
  /// How many there are in this process that have no data.
  static size_t count() noexcept { return unfilled_.load(std::memory_order_relaxed); }

  /// Takes over the data of `result`, or for an alias its memory itself.
  void fill(const at::Tensor& result, bool alias);
  /// Somebody reads it. No effect while its segment is being followed.
  void read();
  bool is_filled() const noexcept { return !pending_; }

 private:
  void set_filled();
  std::shared_ptr<PendingSegment> pending_;
  uint32_t value_;
  c10::Storage storage_until_filled_;  // kept: who counts memory by storages must not meet the address again
  inline static std::atomic<size_t> unfilled_{0};
};

/// The arguments of a step, taken from this call's inputs and values.
torch::jit::Stack arguments_of_step(const TraceStep& step, const std::vector<at::Tensor>& inputs,
                                    const std::vector<at::Tensor>& values);

}  // namespace triage::capture
