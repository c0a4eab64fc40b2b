// What capture costs: guards by the number of tensors and of graphs, the capture itself, recompiles, and calls of
// policies whose graph breaks. Goals: 0.1 us for three tensors and 0.03 us for one more; 0.05 us for a second graph; 5
// ms for 50 operators; the 1,000th recompile no slower than the 10th.
#include "runtime/capture/compiled.h"
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <malloc.h>
#include <triage/compiler_config.h>
#include <triage/triage.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace triage::bench {
namespace {

Line amount(const std::string& work, double took, const std::string& unit, double goal = 0) {
  Line line{work, "", took};
  line.unit = unit;
  line.goal = goal;
  return line;
}

void measure_guards(const Add& add) {
  std::vector<double> micros;
  for (const int64_t count : {1, 2, 3, 4, 8, 16}) {
    bool held = true;
    const std::vector<at::Tensor> inputs(static_cast<size_t>(count), at::randn({32, 512}));
    const auto guards = capture::Guards::of(inputs);
    const Timing timing = measure({[&] { held &= guards.hold(inputs); }});
    if (!held) throw std::logic_error("the guards do not hold");
    add(line_of(timing, 0, "guards of " + std::to_string(count) + " tensors", "", "", count == 3 ? 0.1 : 0));
    micros.push_back(timing.micros[0]);
  }
  add(amount("... of one more tensor", (micros.back() - micros.front()) / 15, "us", 0.03));

  Runtime runtime;
  const Policy one = runtime.load_source("return function(z) return z end", "one.lua");
  const Policy two = runtime.load_source("return function(z) return z end", "two.lua");
  const std::vector<at::Tensor> matrix = {at::randn({32, 512})}, vector = {at::randn({32})};
  one.run(matrix);
  two.run(matrix);
  two.run(vector);
  const Timing timing = measure({[&] { one.run(matrix); }, [&] { two.run(matrix); }});
  add(amount("a second graph in front", timing.micros[1] - timing.micros[0], "us", 0.05));
}

void measure_capture(const Add& add) {
  std::string source = "return function(z)\n";
  for (int i = 0; i < 50; ++i) source += "z = z + " + std::to_string(i) + "\n";
  Runtime runtime;
  std::vector<double> times;
  for (int i = 0; i < 20; ++i) {
    const Policy policy = runtime.load_source(source + "return z end", "fifty" + std::to_string(i) + ".lua");
    times.push_back(milliseconds([&] { policy.run({at::ones({4, 4})}); }));
  }
  add(amount("capture of 50 operators", summarize(times).median, "ms", 5));
}

double kilobytes_in_use() { return static_cast<double>(mallinfo2().uordblks) / 1024; }

/// One graph for each size, which the script counts to, as long as the limits allow.
void measure_recompiles(const Add& add) {
  CompilerConfig config = get_compiler_config();
  const CompilerConfig before = config;
  config.recompile_limit = config.accumulated_recompile_limit = 1'000'000;
  set_compiler_config(config);
  Runtime runtime;
  const std::string by_size = "return function(z) for _ = 2, #z, #z do z = z + 0 end return z:relu() * 2 end";
  const Policy sized = runtime.load_source(by_size, "sized.lua");
  std::vector<double> recompiles;
  const double empty = kilobytes_in_use();
  const auto of_size = [](int64_t size) { return at::ones({size, 0}); };  // no elements: all captures compute alike
  for (int64_t i = 1; i <= 1000; ++i) recompiles.push_back(milliseconds([&] { sized.run({of_size(i)}); }));
  const double full = kilobytes_in_use();
  set_compiler_config(before);
  const auto of_fifty = [&](ptrdiff_t from) {
    return summarize({recompiles.begin() + from, recompiles.begin() + from + 50}).median;
  };
  const CacheStatistics cache = sized.cache();
  if (cache.graphs < 1000) throw std::logic_error("there is not one graph for each size");
  const double first = of_fifty(9), latest = of_fifty(950);
  add(amount("recompiles 10 to 59", first, "ms"));
  Line last = amount("recompiles 951 to 1000", latest, "ms", 1.1);
  last.limit = "10 to 59";
  last.limit_took = first;
  last.ratio = latest / first;
  add(last);
  const std::vector<at::Tensor> oldest = {of_size(1)};
  add(line_of(measure({[&] { sized.run(oldest); }}), 0, "a call with the oldest of 1000 graphs", ""));
  add(amount("memory of a graph, Policy::cache()", static_cast<double>(cache.bytes) / 1024 / 1000, "kB"));
  add(amount("... by the allocator", (full - empty) / 1000, "kB"));
}

constexpr const char* whole = R"(
return function(z)
  local y = ((z * 2 + 1):relu() - z):abs()
  return ((y * 3 - 1):relu() + z):clamp({max = 3})
end)";
constexpr const char* broken = R"(
return function(z)
  local y = ((z * 2 + 1):relu() - z):abs()
  triage.graph_break()
  return ((y * 3 - 1):relu() + z):clamp({max = 3})
end)";

void measure_followed(const Add& add) {
  for (const std::string backend : {"eager", "fused"}) {
    RuntimeOptions options;
    options.backend = backend;
    Runtime runtime(options);
    for (const auto& [rows, columns] : shapes) {
      const Policy one = runtime.load_source(whole, "whole.lua"), two = runtime.load_source(broken, "broken.lua");
      const std::vector<at::Tensor> inputs = {at::randn({rows, columns})};
      for (const Policy* policy : {&one, &two}) {
        for (int i = 0; i < 3; ++i) policy->run(inputs);
        policy->prepare(inputs);
      }
      const Timing timing = measure({[&] {
                                       set_stance(Stance::force_eager);
                                       two.run(inputs);
                                       set_stance(Stance::default_stance);
                                     },
                                     [&] { two.run(inputs); }, [&] { one.run(inputs); }});
      const std::string shape = shape_name(rows, columns);
      add(line_of(timing, 1, "break in the middle, " + backend, shape, "script", 1));
      add(line_of(timing, 2, "... as one graph, " + backend, shape, "script", 1));
    }
  }
}

const Table capture_table("capture", "Capture, recompiles, and calls with a graph break after four of eight operators",
                          [](const Add& add) {
                            measure_guards(add);
                            measure_capture(add);
                            measure_recompiles(add);
                            measure_followed(add);
                          });

}  // namespace
}  // namespace triage::bench
