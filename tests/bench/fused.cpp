// Policies on the fused backend against what bounds them: a read of the data, a copy into a warm buffer, or the one
// transcendental operator they contain, run alone into a warm buffer.
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/runtime.h>

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace triage::bench {
namespace {

constexpr double call = 1;  // us: the floor of a compiled call

/// Times the limit, at the three shapes.
using Goals = std::map<std::string, std::vector<double>>;

const Goals goals = {{"flag_nan", {1.1, 1.1, 1.2}},
                     {"flag_nan_and_inf", {1.1, 1.1, 1.2}},
                     {"plain_repair", {1.7, 1.1, 1.25}},
                     {"detect_repair", {1.7, 1.1, 1.25}},
                     {"zscore_clip", {9, 4.5, 4}},
                     {"softmax_repair", {1, 1, 1}},
                     {"branch", {1, 1, 1}}};

Runtime runtime_for(const char* backend) {
  RuntimeOptions options;
  options.backend = backend;
  return Runtime(options);
}

void measure_policies(const Add& add) {
  std::vector<Runtime> runtimes;
  for (const char* const backend : {"fused", "eager"}) runtimes.push_back(runtime_for(backend));
  for (const auto& [name, work] : works()) {
    for (size_t i = 0; i < std::size(shapes); ++i) {
      const auto [rows, columns] = shapes[i];
      const at::Tensor z = noise(rows, columns);
      at::Tensor warm = at::zeros_like(z);
      std::vector<std::function<void()>> calls = {[&, &work = work] { work.run_limit(z, warm); }};
      for (Runtime& runtime : runtimes) {
        const Policy policy = runtime.load_source(work.source);
        policy.prepare({z});
        calls.emplace_back([policy, &z] { benchmark::DoNotOptimize(policy.run({z}).data()); });
      }
      const Timing timing = measure(calls);
      add(line_of(timing, 1, name, shape_name(rows, columns), work.limit, goals.at(name)[i], call));
      add(line_of(timing, 2, name + ", eager backend", shape_name(rows, columns), work.limit));
    }
  }
}

/// The input is the host's to give away: bad rows come anew with every batch, as they would.
void measure_donated(const Add& add) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  Runtime runtime = runtime_for("fused");
  for (const auto& [rows, columns] : shapes) {
    at::Tensor z = noise(rows, columns);
    const Policy policy = runtime.load_source(works().at("detect_repair").source);
    const RunOptions donate{.donate = {0}};
    for (int i = 0; i < 3; ++i) policy.run({z}, donate);  // the first one makes the tape that writes in place
    const auto spoil = [&, rows = rows, columns = columns] {
      for (int64_t row = 0; row < rows; row += rows / 5)
        z.data_ptr<float>()[row * columns + row * 7 % columns] = infinity;
    };
    const Timing timing = measure({[&] { benchmark::DoNotOptimize(at::sum(z)); },
                                   [&] {
                                     spoil();
                                     benchmark::DoNotOptimize(policy.run({z}, donate).data());
                                   }});
    add(line_of(timing, 1, "detect_repair, donated", shape_name(rows, columns), "read", 1.2, call));
  }
}

const Table table("fused", "Policies on the fused backend against what bounds them (us; the floor of a call is 1)",
                  [](const Add& add) {
                    measure_policies(add);
                    measure_donated(add);
                  });

}  // namespace
}  // namespace triage::bench
