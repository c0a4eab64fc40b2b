#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace triage::fused {

class Tape;

/// How long each step of a tape took, by its number in the listing: of one or several calls, on all their threads.
class StepTimes {
 public:
  using Nanoseconds = std::vector<int64_t>;

  /// What one thread took. The times of a tape take the place of those of another one.
  void add(const Tape& tape, const Nanoseconds& times);
  const Tape* tape() const { return tape_; }  // null: none ran
  const Nanoseconds& nanoseconds() const { return nanoseconds_; }

  // Nanoseconds, of a call: from the beginning of its tape to the end on all threads, and of all that it belongs to.
  int64_t loops = 0, whole = 0;

 private:
  std::mutex mutex_;
  const Tape* tape_ = nullptr;
  Nanoseconds nanoseconds_;
};

/// What a run of a tape tells of its steps where nobody asks: nothing, which costs nothing.
struct NoClock {
  void start() {}
  void end_step(size_t) {}
};

/// A step takes as long as has passed since the one before it ended, without what reading the clock takes.
class StepClock {
 public:
  explicit StepClock(size_t steps) : times_(steps), cost_(cost_of_reading()) {}
  void start() { last_ = now(); }
  void end_step(size_t step) {
    const int64_t time = now();
    times_[step] += std::max<int64_t>(0, time - last_ - cost_);
    last_ = time;
  }
  const StepTimes::Nanoseconds& times() const { return times_; }

  static int64_t now() {
    const auto time = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  }

 private:
  static int64_t cost_of_reading();

  StepTimes::Nanoseconds times_;
  int64_t cost_, last_ = 0;
};

}  // namespace triage::fused
