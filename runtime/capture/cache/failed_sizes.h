#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

namespace triage::capture {

/// Sizes of inputs for which a graph failed and its script did not: in a graph all branches run, also those that the
/// script does not take. Such calls are not for the graph. `exclude`: any number of threads, without a lock; `add`: one
/// at a time.
class FailedSizes {
 public:
  /// `captured`: the inputs of the call that was captured.
  explicit FailedSizes(at::ArrayRef<at::Tensor> captured) : captured_(sizes_of(captured)) {}
  FailedSizes(const FailedSizes&) = delete;
  FailedSizes& operator=(const FailedSizes&) = delete;

  bool exclude(at::ArrayRef<at::Tensor> inputs) const noexcept;
  /// Where they become many, the graph is for the sizes that were captured alone.
  void add(at::ArrayRef<at::Tensor> inputs);

 private:
  using Sizes = std::vector<std::vector<int64_t>>;
  struct FailedCallSizes {
    Sizes sizes;
    const FailedCallSizes* older;
  };
  static constexpr size_t most = 16;
  static Sizes sizes_of(at::ArrayRef<at::Tensor> inputs);
  static bool is_of(const Sizes& sizes, at::ArrayRef<at::Tensor> inputs) noexcept;

  const Sizes captured_;
  std::deque<FailedCallSizes> kept_;
  std::atomic<const FailedCallSizes*> newest_{nullptr};
  std::atomic<bool> many_{false};
};

}  // namespace triage::capture
