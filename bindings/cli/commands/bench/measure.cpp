#include "bindings/cli/commands/bench/measure.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>

namespace triage::bench {
namespace {

constexpr int fewest_rounds = 5;

/// Of sorted values; `part` is between 0 and 1.
double quantile(const std::vector<double>& values, double part) {
  return values[static_cast<size_t>(static_cast<double>(values.size() - 1) * part + 0.5)];
}

double wall_micros() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// On one thread its processor time, which other programs on the machine disturb little; on several, the time on the
// wall.
double now_micros() {
  if (at::get_num_threads() > 1) return wall_micros();
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

double micros_of(const std::function<void()>& run, int64_t calls) {
  const double start = now_micros();
  for (int64_t i = 0; i < calls; ++i) run();
  return (now_micros() - start) / static_cast<double>(calls);
}

}  // namespace

double wall_micros_of(const std::function<void()>& work, int64_t calls) {
  const double start = wall_micros();
  for (int64_t i = 0; i < calls; ++i) work();
  return (wall_micros() - start) / static_cast<double>(calls);
}

double milliseconds(const std::function<void()>& work) { return wall_micros_of(work, 1) / 1000; }

TimingSummary summarize(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {quantile(times, 0.5), (quantile(times, 0.75) - quantile(times, 0.25)) / 2};
}

Timing measure(const std::vector<std::function<void()>>& candidates, int rounds, double seconds) {
  const double end = wall_micros() + seconds * 1e6;
  std::vector<int64_t> calls;
  for (const auto& run : candidates) {
    run();
    calls.push_back(std::max<int64_t>(1, static_cast<int64_t>(1000 / std::max(micros_of(run, 3), 0.05))));
  }
  std::vector<std::vector<double>> times(candidates.size()), ratios(candidates.size());
  for (int round = 0; round < rounds && (round < fewest_rounds || wall_micros() < end); ++round) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      times[i].push_back(micros_of(candidates[i], calls[i]));
      ratios[i].push_back(times[i].back() / times[0].back());
    }
  }
  Timing result;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const TimingSummary all = summarize(times[i]);
    result.micros.push_back(all.median);
    result.spread.push_back(all.spread);
    result.ratio.push_back(summarize(ratios[i]).median);
  }
  return result;
}

}  // namespace triage::bench
