#pragma once
#include "runtime/capture/compiled.h"

#include <atomic>
#include <mutex>
#include <vector>

namespace triage::policy {

/// The trial of a version that went live without having been captured ahead for all kinds of inputs in use, because it
/// cannot run on made-up ones. It is on until the version has answered a call of each such kind; until then a call that it
/// fails is answered by the version before it. Thread-safe.
class Trial {
 public:
  /// One more kind of inputs: dtypes and ranks count, sizes do not.
  void add(std::vector<capture::InputShape> kind);
  bool on() const noexcept { return on_.load(std::memory_order_acquire); }
  bool covers(at::ArrayRef<at::Tensor> inputs) const;
  /// Those of which no call was answered yet.
  std::vector<std::vector<capture::InputShape>> kinds() const;
  /// A call with these inputs was answered. True when that ends the trial.
  bool pass(at::ArrayRef<at::Tensor> inputs);

 private:
  std::atomic<bool> on_{false};
  mutable std::mutex mutex_;
  std::vector<std::vector<capture::InputShape>> kinds_;
};

}  // namespace triage::policy
