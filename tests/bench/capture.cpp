// What capture costs: guards by the number of tensors and of graphs, the capture itself, recompiles, and calls of policies whose
// graph breaks. Goals: 0.1 us for three tensors and 0.03 us for one more; 0.05 us for a second graph; 5 ms for 50 operators;
// the 1,000th recompile no slower than the 10th.
#include "runtime/capture/compiled.h"
#include "table.h"

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <malloc.h>
#include <triage/compiler_config.h>
#include <triage/triage.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace {

using triage::bench::measure;
using triage::bench::Table;

double milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void print_guards() {
  fmt::print("guards\n");
  std::vector<double> micros;
  for (const int64_t count : {1, 2, 3, 4, 8, 16}) {
    bool held = true;
    const std::vector<at::Tensor> inputs(static_cast<size_t>(count), at::randn({32, 512}));
    const auto guards = triage::capture::Guards::of(inputs);
    micros.push_back(measure({[&] { held &= guards.hold(inputs); }}).micros[0]);
    fmt::print("  {:2} tensors                   {:8.3f} us{}{}\n", count, micros.back(),
               count == 3 ? "   (goal 0.1)" : "", held ? "" : "  NOT HELD");
  }
  fmt::print("  one more tensor              {:8.3f} us   (goal 0.03)\n", (micros.back() - micros.front()) / 15);

  triage::Runtime runtime;
  triage::Policy one = runtime.load_source("return function(z) return z end", "one.lua");
  triage::Policy two = runtime.load_source("return function(z) return z end", "two.lua");
  const std::vector<at::Tensor> matrix = {at::randn({32, 512})}, vector = {at::randn({32})};
  one.run(matrix);
  two.run(matrix);
  two.run(vector);
  const auto timing = measure({[&] { one.run(matrix); }, [&] { two.run(matrix); }});
  fmt::print(
      "  a second graph in front      {:8.3f} us   (goal 0.05; the identity policy {:.3f} us with one, {:.3f} us)\n",
      timing.micros[1] - timing.micros[0], timing.micros[0], timing.micros[1]);
}

void print_capture() {
  std::string source = "return function(z)\n";
  for (int i = 0; i < 50; ++i) source += "z = z + " + std::to_string(i) + "\n";
  triage::Runtime runtime;
  std::vector<double> times;
  for (int i = 0; i < 20; ++i) {
    triage::Policy policy = runtime.load_source(source + "return z end", "fifty" + std::to_string(i) + ".lua");
    times.push_back(milliseconds([&] { policy.run({at::ones({4, 4})}); }));
  }
  std::sort(times.begin(), times.end());
  fmt::print("capture of 50 operators        {:8.3f} ms   (goal 5)\n", times[times.size() / 2]);
}

double kilobytes_in_use() { return static_cast<double>(mallinfo2().uordblks) / 1024; }

/// One graph for each size, which the script counts to, as long as the limits allow.
void print_recompiles() {
  triage::CompilerConfig config = triage::get_compiler_config();
  const triage::CompilerConfig before = config;
  config.recompile_limit = config.accumulated_recompile_limit = 1'000'000;
  triage::set_compiler_config(config);
  triage::Runtime runtime;
  const std::string by_size = "return function(z) for _ = 2, #z, #z do z = z + 0 end return z:relu() * 2 end";
  triage::Policy sized = runtime.load_source(by_size, "sized.lua");
  std::vector<double> recompiles;
  const double empty = kilobytes_in_use();
  for (int64_t i = 1; i <= 1000; ++i) recompiles.push_back(milliseconds([&] { sized.run({at::ones({i})}); }));
  const double full = kilobytes_in_use();
  triage::set_compiler_config(before);
  const auto around = [&](size_t from) {
    std::vector<double> some(recompiles.begin() + static_cast<std::ptrdiff_t>(from),
                             recompiles.begin() + static_cast<std::ptrdiff_t>(from) + 10);
    std::sort(some.begin(), some.end());
    return some[5];
  };
  const triage::CacheStatistics cache = sized.cache();
  fmt::print("recompiles   10 to   19        {:8.3f} ms\n", around(9));
  fmt::print("recompiles  991 to 1000        {:8.3f} ms   (goal: no slower; {:.2f} times; {} graphs)\n", around(990),
             around(990) / around(9), cache.graphs);
  fmt::print("a call with the oldest graph   {:8.3f} us\n", [&] {
    const std::vector<at::Tensor> oldest = {at::ones({1})};
    return measure({[&] { sized.run(oldest); }}).micros[0];
  }());
  fmt::print("memory of a graph of 3 operators {:6.1f} kB, as Policy::cache() counts it; {:.1f} kB of the allocator\n",
             static_cast<double>(cache.bytes) / 1024 / 1000, (full - empty) / 1000);
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

void print_followed() {
  fmt::print("eight operators with a graph break in the middle, against the same as one graph\n");
  for (const std::string backend : {"eager", "fused"}) {
    triage::RuntimeOptions options;
    options.backend = backend;
    triage::Runtime runtime(options);
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{32, 512}, {256, 1024}, {4096, 1024}}) {
      triage::Policy one = runtime.load_source(whole, "whole.lua");
      triage::Policy two = runtime.load_source(broken, "broken.lua");
      const std::vector<at::Tensor> inputs = {at::randn({rows, columns})};
      for (triage::Policy* policy : {&one, &two}) {
        for (int i = 0; i < 3; ++i) policy->run(inputs);
        policy->prepare(inputs);
      }
      const auto timing = measure({[&] {
                                     triage::set_stance(triage::Stance::force_eager);
                                     two.run(inputs);
                                     triage::set_stance(triage::Stance::default_stance);
                                   },
                                   [&] { two.run(inputs); }, [&] { one.run(inputs); }});
      fmt::print(
          "  {:5}  {:4}x{:<5} script alone {:9.2f} us   two graphs and the script {:9.2f} us ({:.2f} times; goal: "
          "below "
          "1)   one graph {:9.2f} us\n",
          backend, rows, columns, timing.micros[0], timing.micros[1], timing.ratio[1], timing.micros[2]);
    }
  }
}

const Table table("capture", [] {
  print_guards();
  print_capture();
  print_recompiles();
  print_followed();
});

}  // namespace
