// What one warm call of a policy costs besides its operators, against the limits that are promised for it: everything from
// the host's `run` to its outputs for a policy that does nothing, and the check of the guards alone.
#include "table.h"

#include "runtime/capture/compiled.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/runtime.h>

#include <cstdio>

namespace triage::bench {
namespace {

void print_line(const char* name, double micros, double limit) {
  std::printf("%-44s %8.3f %8.3f   %s\n", name, micros, limit, micros <= limit ? "within" : "over");
}

void print_policy_calls() {
  Runtime runtime;
  const Policy identity = runtime.load_source("return function(z) return z end", "identity.lua");
  const Policy two = runtime.load_source(
      "return policy { inputs = {'z', 'f'}, outputs = {'z', 'f'}, params = {limit = 1.0},\n"
      "  run = function(z, f, p) return z, f end }",
      "two.lua");
  const at::Tensor z = at::randn({32, 512}), f = at::zeros({32, 4}, at::kLong);
  identity.prepare({z});
  two.prepare({z, f});
  const std::vector<at::Tensor> three = {z, f, at::ones({})};
  const auto guards = capture::Guards::of(three);
  const Timing timing = measure({
      [&] { benchmark::DoNotOptimize(identity.run({z}).data()); },
      [&] { benchmark::DoNotOptimize(identity.run<1>({z}).data()); },
      [&] {
        benchmark::DoNotOptimize(two.run({z, f}).data());
      },
      [&] {
        benchmark::DoNotOptimize(two.run({z, f}, {.params = {{"limit", 2.0}}}).data());
      },
      [&] { benchmark::DoNotOptimize(guards.hold(three)); },
  });
  std::printf("A warm call, microseconds\n%-44s %8s %8s\n", "", "took", "limit");
  print_line("function(z) return z end", timing.micros[0], 1.0);
  print_line("... destructured", timing.micros[1], 1.0);
  print_line("two inputs, two outputs, one param", timing.micros[2], 1.0);
  print_line("... the param given with the call", timing.micros[3], 1.0);
  print_line("guard check of three tensors", timing.micros[4], 0.1);
}

const Table policy_calls("policy_call", print_policy_calls);

}  // namespace
}  // namespace triage::bench
