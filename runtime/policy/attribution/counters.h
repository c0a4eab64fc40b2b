#pragma once
#include <triage/config.h>
#include <triage/front_end.h>
#include <triage/statistics.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/capture/compiled.h"

namespace triage::policy {

FailureKind kind_of(const std::exception& error) noexcept;

/// Errors by location, code and severity. Counts without a lock; memory for a location is allocated when it has its
/// first error.
class FlagCounts {
 public:
  FlagCounts() = default;
  ~FlagCounts();
  FlagCounts(const FlagCounts&) = delete;
  FlagCounts& operator=(const FlagCounts&) = delete;

  /// `slot`: an error as it stands in a record (triage/layout.h).
  void add(uint16_t slot, uint64_t count) noexcept;
  /// With the names that `codes` has for free codes.
  std::vector<FlagCount> read(const CodeNames& codes) const;

 private:
  using Page = std::array<std::atomic<uint64_t>, 1u << LOCATION_SHIFT>;  // by code and severity, as in the slot
  std::array<std::atomic<Page*>, LOCATION_MASK + 1> pages_ = {};
};

/// Counts of the calls of one version. Any thread may count at any time, without a lock: each has a stripe that few
/// others use.
class Counters {
 public:
  static constexpr size_t stripe_count = 16;

  struct Flagged {
    uint64_t samples = 0, flagged = 0, repaired = 0, full = 0;
  };
  /// Of a version with this signature.
  explicit Counters(const Signature& signature);
  void answered(Answered by, CallForm form, std::chrono::nanoseconds time) noexcept;
  void failed(FailureKind kind) noexcept;
  void flagged(const Flagged& found) noexcept;
  /// Samples of output `index` of the signature, which has a range.
  void violated(size_t index, uint64_t samples) noexcept;
  void uncounted() noexcept { uncounted_.fetch_add(1, std::memory_order_relaxed); }
  FlagCounts& flags() noexcept { return flags_; }
  capture::CompileCounts& compiled() noexcept { return compiled_; }

  /// The version is destroyed: nothing counts any more. Who sees `ended` reads all that was counted.
  void end() noexcept { ended_.store(true, std::memory_order_release); }
  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }

  /// Of all calls so far.
  Flagged totals() const noexcept;
  CallStatistics read() const;

 private:
  using Count = std::atomic<uint64_t>;
  struct alignas(64) CounterStripe {
    std::array<std::array<Count, call_form_count>, answered_count> answers = {};
    std::array<Count, latency_bucket_count> latency = {};
    Count time{0}, samples{0}, flagged{0}, repaired{0}, full{0};
  };
  CounterStripe& mine() noexcept;

  const CodeNames codes_;
  std::array<CounterStripe, stripe_count> stripes_;
  std::array<Count, failure_kind_count> failures_ = {};
  Count uncounted_{0};
  struct Violated {
    size_t index;
    std::string output;
    Count samples{0};
    Violated(size_t which, std::string name) : index(which), output(std::move(name)) {}
  };
  std::deque<Violated> violated_;  // of the outputs with a range
  FlagCounts flags_;
  capture::CompileCounts compiled_;
  std::atomic<bool> ended_{false};
};

/// What the versions of one policy have counted. A version's counts outlive it: its calls may end after it was
/// replaced. Not thread-safe: the policy's mutex guards it.
class CallCounts {
 public:
  void add(int number, const std::string& hash, std::shared_ptr<const Counters> counters);
  /// Sets `total` and `versions`.
  void read(PolicyStatistics& statistics);

 private:
  struct CountedVersion {
    int number;
    std::string hash;
    std::shared_ptr<const Counters> counters;
  };
  void forget_ended();

  std::vector<CountedVersion> counted_;  // those that still count, oldest first
  CallStatistics gone_;                  // of those that do not
};

}  // namespace triage::policy
