#include "runtime/policy/versions/use.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

namespace triage::policy {

void PolicyUsage::note(const RunOptions& options) noexcept {
  const auto note = [](std::atomic<bool>& noted, bool now) {
    if (noted.load(std::memory_order_relaxed) != now) noted.store(now, std::memory_order_relaxed);
  };
  note(grad_mode_, c10::GradMode::is_enabled());
  note(inference_mode_, c10::InferenceMode::is_enabled());
  for (const size_t index : options.donate)
    if (const uint64_t bit = index < 64 ? uint64_t{1} << index : 0; bit & ~donated_.load(std::memory_order_relaxed))
      donated_.fetch_or(bit, std::memory_order_relaxed);
}

std::vector<size_t> PolicyUsage::donated() const {
  std::vector<size_t> inputs;
  for (size_t index = 0; index < 64; ++index)
    if (donated_.load(std::memory_order_relaxed) >> index & 1) inputs.push_back(index);
  return inputs;
}

}  // namespace triage::policy
