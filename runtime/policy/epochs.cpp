#include "runtime/policy/epochs.h"

namespace triage::policy {

size_t Epochs::stripe() noexcept {
  static std::atomic<size_t> next{0};
  // A thread keeps to its stripe, so that threads which read do not write to one cache line.
  thread_local const size_t mine = next.fetch_add(1, std::memory_order_relaxed) % stripe_count;
  return mine;
}

bool Grace::passed(const Epochs& epochs) noexcept {
  for (size_t phase = 0; phase < 2; ++phase) {
    for (size_t stripe = 0; stripe < Epochs::stripe_count; ++stripe) {
      const uint32_t bit = 1u << stripe;
      if ((pending_[phase] & bit) && epochs.empty(phase, stripe)) pending_[phase] &= ~bit;
    }
  }
  return pending_[0] == 0 && pending_[1] == 0;
}

}  // namespace triage::policy
