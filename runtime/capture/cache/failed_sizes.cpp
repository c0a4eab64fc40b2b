#include "runtime/capture/cache/failed_sizes.h"

namespace triage::capture {

FailedSizes::Sizes FailedSizes::sizes_of(at::ArrayRef<at::Tensor> inputs) {
  Sizes sizes;
  for (const at::Tensor& input : inputs) sizes.push_back(input.sizes().vec());
  return sizes;
}

bool FailedSizes::is_of(const Sizes& sizes, at::ArrayRef<at::Tensor> inputs) noexcept {
  if (sizes.size() != inputs.size()) return false;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (inputs[i].sizes() != sizes[i]) return false;
  return true;
}

bool FailedSizes::exclude(at::ArrayRef<at::Tensor> inputs) const noexcept {
  for (const FailedCallSizes* failed = newest_.load(std::memory_order_acquire); failed; failed = failed->older)
    if (is_of(failed->sizes, inputs)) return true;
  return many_.load(std::memory_order_relaxed) && !is_of(captured_, inputs);
}

void FailedSizes::add(at::ArrayRef<at::Tensor> inputs) {
  if (exclude(inputs)) return;
  const bool captured = is_of(captured_, inputs);  // kept beyond the bound: it is one
  if (kept_.size() >= most && !captured) return many_.store(true, std::memory_order_relaxed);
  kept_.push_back({sizes_of(inputs), newest_.load(std::memory_order_relaxed)});
  newest_.store(&kept_.back(), std::memory_order_release);
}

}  // namespace triage::capture
