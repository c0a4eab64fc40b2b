// What a second thread brings policies on the fused backend, against what it brings to a read of the same data (at::sum).
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <triage/runtime.h>

namespace triage::bench {
namespace {

/// On two threads against one, in time on the wall.
Timing speed_up(const std::function<void()>& work) {
  return measure({[&] {
                    at::set_num_threads(1);
                    work();
                    at::set_num_threads(2);
                  },
                  work});
}

void measure_threads(const Add& add) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
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
