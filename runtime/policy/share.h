#pragma once
#include <atomic>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "runtime/files/checksum.h"

namespace triage::policy {

/// Which calls belong to a share of all: by hash of the decision id, so that a decision is in or out wherever it is
/// made, and a larger share has all decisions of a smaller one. Calls without an id take turns. Thread-safe.
class ShareOfCalls {
 public:
  /// `share`: from 0 to 1. With the same `salt`, shares select the same decisions.
  ShareOfCalls(double share, uint64_t salt) noexcept : share_(share), salt_(salt) {}

  bool takes(std::string_view decision_id) noexcept {
    if (share_ <= 0 || share_ >= 1) return share_ > 0;
    if (!decision_id.empty())
      return static_cast<double>(mixed(files::checksum(decision_id, salt_)) >> 11) * 0x1p-53 < share_;
    const auto before = static_cast<double>(turns_.fetch_add(1, std::memory_order_relaxed));
    return std::floor((before + 1) * share_) > std::floor(before * share_);
  }

 private:
  /// Every bit of the result depends on every bit of `value` (the finalizer of splitmix64).
  static uint64_t mixed(uint64_t value) noexcept {
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
  }

  const double share_;
  const uint64_t salt_;
  std::atomic<uint64_t> turns_{0};
};

}  // namespace triage::policy
