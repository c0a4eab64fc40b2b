#pragma once
// What a call costs against the limit that the machine sets, both measured in the same run, turn by turn, as medians.
// Wall times of two separate runs say little on a shared machine; their ratio in one run says much.
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace triage::bench {

/// The median of some times, and half the distance between their quartiles.
struct TimingSummary {
  double median = 0, spread = 0;
};
TimingSummary summarize(std::vector<double> times);

/// Median microseconds a call of each candidate. In every round each candidate runs for about a millisecond, once at
/// least. `spread[i]` is half the distance between the quartiles of its times; `ratio[i]` the median over the rounds of
/// candidate i against candidate 0 of the same round.
struct Timing {
  std::vector<double> micros;
  std::vector<double> spread;
  std::vector<double> ratio;
};

/// Five rounds at least; after them it ends when `seconds` have gone by.
Timing measure(const std::vector<std::function<void()>>& candidates, int rounds = 41,
               double seconds = std::numeric_limits<double>::infinity());

/// On the wall: of one call, and a call of so many.
double milliseconds(const std::function<void()>& work);
double wall_micros_of(const std::function<void()>& work, int64_t calls);

}  // namespace triage::bench
