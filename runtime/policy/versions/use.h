#pragma once
#include <triage/runtime.h>

#include <atomic>
#include <cstdint>
#include <vector>

namespace triage::policy {

/// How hosts call a policy: versions to come are made ready for calls like these. Thread-safe, without a lock.
class PolicyUsage {
 public:
  void note(const RunOptions& options) noexcept;
  /// The inputs, of the first 64, that some call has donated.
  std::vector<size_t> donated() const;
  /// Of the thread that called last.
  bool grad_mode() const noexcept { return grad_mode_.load(std::memory_order_relaxed); }
  bool inference_mode() const noexcept { return inference_mode_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> donated_{0};
  std::atomic<bool> grad_mode_{true}, inference_mode_{false};
};

}  // namespace triage::policy
