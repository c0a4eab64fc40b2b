#pragma once
#include "runtime/policy/thread_stripe.h"

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace triage::policy {

/// Times of calls in buckets that are an eighth of their bound wide: CallStatistics has buckets that double, too coarse
/// to tell a version that takes 1.5 times as long. Counts without a lock.
class Latency {
 public:
  using Time = std::chrono::nanoseconds;
  static constexpr size_t octaves = 28, buckets = 8 + 8 * octaves;

  struct LatencyHistogram {
    std::array<uint64_t, buckets> counts = {};
    uint64_t total = 0;

    /// The bound of the bucket in which the share of the calls ends. 0 without calls.
    Time quantile(double share) const noexcept {
      const auto wanted = static_cast<uint64_t>(std::ceil(share * static_cast<double>(total)));
      uint64_t seen = 0;
      for (size_t bucket = 0; bucket < buckets; ++bucket)
        if ((seen += counts[bucket]) >= wanted && seen > 0) return bound(bucket);
      return Time{0};
    }
    /// How many calls took at least `time`, as far as the buckets tell: those in the bucket of `time` are left out.
    uint64_t beyond(Time time) const noexcept {
      uint64_t sum = 0;
      for (size_t bucket = bucket_of(time) + 1; bucket < buckets; ++bucket) sum += counts[bucket];
      return sum;
    }
  };

  void note(Time time) noexcept {
    stripes_[thread_stripe(stripes_.size())].counts[bucket_of(time)].fetch_add(1, std::memory_order_relaxed);
  }
  LatencyHistogram read() const noexcept {
    LatencyHistogram sum;
    for (const LatencyStripe& stripe : stripes_)
      for (size_t bucket = 0; bucket < buckets; ++bucket)
        sum.counts[bucket] += stripe.counts[bucket].load(std::memory_order_relaxed);
    for (const uint64_t count : sum.counts) sum.total += count;
    return sum;
  }

  /// Calls in this bucket took less.
  static Time bound(size_t bucket) noexcept {
    if (bucket < 8) return Time{static_cast<int64_t>(bucket + 1) * unit};
    return Time{static_cast<int64_t>(8 + (bucket - 8) % 8 + 1) * unit << (bucket - 8) / 8};
  }
  static size_t bucket_of(Time time) noexcept {
    const uint64_t units = time.count() > 0 ? static_cast<uint64_t>(time.count()) / unit : 0;
    if (units < 8) return units;
    const auto octave = static_cast<size_t>(std::bit_width(units)) - 4;
    return octave < octaves ? 8 * octave + (units >> octave) : buckets - 1;
  }

 private:
  static constexpr int64_t unit = 64;  // ns
  struct alignas(64) LatencyStripe {
    std::array<std::atomic<uint64_t>, buckets> counts = {};
  };
  std::array<LatencyStripe, 8> stripes_;
};

}  // namespace triage::policy
