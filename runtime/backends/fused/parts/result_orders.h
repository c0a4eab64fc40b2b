#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace triage::fused {

/// Dims from the one with the largest stride to the one with the smallest; none: as they are counted.
using DimOrder = c10::SmallVector<int64_t, 5>;

/// Whether elements lie in memory in the order in which they are counted, gaps or not. Of such inputs ATen makes such
/// results, and so do loops.
bool is_row_major(const at::Tensor& tensor);

/// `result` with dims in this order in memory, without gaps: itself, or a copy.
at::Tensor in_order(const at::Tensor& result, const DimOrder& order);

/// In which order ATen lays out the results of a group for inputs that are not row-major. It depends on the order of
/// the dims of the inputs, and on which have one element; but on how many the others have only where elements are
/// counted in other sizes. Thread-safe.
class ResultOrders {
 public:
  explicit ResultOrders(bool by_sizes) : by_sizes_(by_sizes) {}
  using Run = std::function<void(std::vector<at::Tensor>&)>;
  /// One for each result. `run` computes these with ATen where inputs in such an order are new; what it throws is
  /// thrown.
  std::vector<DimOrder> find(at::ArrayRef<at::Tensor> inputs, const Run& run) const;

 private:
  using Key = std::vector<int64_t>;
  Key key_of(at::ArrayRef<at::Tensor> inputs) const;

  const bool by_sizes_;
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<Key, std::vector<DimOrder>>> known_;
};

}  // namespace triage::fused
