// What a second thread brings policies on the fused backend, against what it brings to a read of the same data
// (at::sum).
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <triage/runtime.h>

#include <algorithm>
#include <vector>

namespace triage::bench {
namespace {

/// Candidate 0 on one thread, candidate 1 on two, in time on the wall. The number of threads changes between rounds
/// only, since that takes milliseconds; the first calls after it are not counted.
Timing speed_up(const std::function<void()>& work) {
  constexpr int rounds = 15;
  constexpr double round_micros = 5000;
  std::vector<double> times[2], ratios;
  for (int round = 0; round < rounds; ++round) {
    for (const int threads : {1, 2}) {
      at::set_num_threads(threads);
      for (int i = 0; i < 3; ++i) work();
      const auto calls = static_cast<int64_t>(round_micros / std::max(wall_micros_of(work, 3), 0.1)) + 1;
      times[threads - 1].push_back(wall_micros_of(work, calls));
    }
    ratios.push_back(times[1].back() / times[0].back());
  }
  Timing timing;
  for (const auto& list : times) {
    const TimingSummary all = summarize(list);
    timing.micros.push_back(all.median);
    timing.spread.push_back(all.spread);
  }
  timing.ratio = {1, summarize(ratios).median};
  return timing;
}

void measure_threads(const Add& add) {
  const int before = at::get_num_threads();
  Runtime runtime;
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

const Table threads_table("threads",
                          "Two threads against one (us on the wall; goal: the speed-up of a read, within a tenth)",
                          measure_threads);

}  // namespace
}  // namespace triage::bench
