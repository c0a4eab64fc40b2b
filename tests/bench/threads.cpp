// What a second thread brings policies on the fused backend, against what it brings to a read of the same data (at::sum).
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <triage/runtime.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace triage::bench {
namespace {

double micros_of(const std::function<void()>& work, int64_t calls) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() /
         static_cast<double>(calls);
}

/// Candidate 0 on one thread, candidate 1 on two, in time on the wall. The number of threads changes between rounds only, since
/// that takes milliseconds; the first calls after it are not counted.
Timing speed_up(const std::function<void()>& work) {
  constexpr int rounds = 15;
  constexpr double round_micros = 5000;
  std::vector<double> times[2], ratios;
  for (int round = 0; round < rounds; ++round) {
    for (const int threads : {1, 2}) {
      at::set_num_threads(threads);
      for (int i = 0; i < 3; ++i) work();
      const auto calls = static_cast<int64_t>(round_micros / std::max(micros_of(work, 3), 0.1)) + 1;
      times[threads - 1].push_back(micros_of(work, calls));
    }
    ratios.push_back(times[1].back() / times[0].back());
  }
  Timing timing;
  for (auto& list : times) {
    std::sort(list.begin(), list.end());
    timing.micros.push_back(list[rounds / 2]);
    timing.spread.push_back((list[rounds * 3 / 4] - list[rounds / 4]) / 2);
  }
  std::sort(ratios.begin(), ratios.end());
  timing.ratio = {1, ratios[rounds / 2]};
  return timing;
}

void measure_threads(const Add& add) {
  const int before = at::get_num_threads();
  RuntimeOptions options;
  options.backend = "fused";
  Runtime runtime(options);
  for (const auto& [rows, columns] : shapes) {
    const at::Tensor z = noise(rows, columns);
    const Timing read = speed_up([&] { benchmark::DoNotOptimize(at::sum(z)); });
    add(line_of(read, 1, "read (at::sum)", shape_name(rows, columns), "one thread"));
    for (const auto& [name, work] : works()) {
      const Policy policy = runtime.load_source(work.source);
      policy.prepare({z});
      const Timing timing = speed_up([&] { benchmark::DoNotOptimize(policy.run({z}).data()); });
      add(line_of(timing, 1, name, shape_name(rows, columns), "one thread", read.ratio[1] / 0.9, 0));
    }
  }
  at::set_num_threads(before);
}

const Table table("threads", "Two threads against one (us on the wall; goal: the speed-up of a read, within a tenth)",
                  measure_threads);

}  // namespace
}  // namespace triage::bench
