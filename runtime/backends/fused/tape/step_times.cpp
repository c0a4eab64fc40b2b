#include "runtime/backends/fused/tape/step_times.h"

#include <atomic>
#include <limits>

namespace triage::fused {

void StepTimes::add(const Tape& tape, const Nanoseconds& times) {
  const std::lock_guard lock(mutex_);
  if (tape_ != &tape) nanoseconds_.assign(times.size(), 0);
  tape_ = &tape;
  for (size_t i = 0; i < times.size(); ++i) nanoseconds_[i] += times[i];
}

/// The least of several readings: other processes make single ones longer.
int64_t StepClock::cost_of_reading() {
  const auto least_of_many = [] {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int i = 0; i < 100; ++i) {
      const int64_t begin = now();
      least = std::min(least, now() - begin);
    }
    return least;
  };
  static std::atomic<int64_t> cost{-1};
  if (cost < 0) cost = least_of_many();
  return cost;
}

}  // namespace triage::fused
