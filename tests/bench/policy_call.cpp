// What one warm call of a policy costs besides its operators: everything from the host's `run` to its outputs for a
// policy that does nothing, and the check of the guards alone.
#include "runtime/capture/compiled.h"
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/runtime.h>

namespace triage::bench {
namespace {

void measure_policy_calls(const Add& add) {
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
  Runtime fused;
  const Policy repair = fused.load_source(works().at("detect_repair").source, "repair.lua");
  repair.prepare({z});
  const Timing whole = measure({[&] { benchmark::DoNotOptimize(repair.run({z}).data()); }});
  const char* names[] = {"function(z) return z end", "... destructured", "two inputs, two outputs, one param",
                         "... the param given with the call"};
  for (size_t i = 0; i < std::size(names); ++i) add(line_of(timing, i, names[i], "", "", 1));
  add(line_of(timing, 4, "guard check of three tensors", "", "", 0.1));
  add(line_of(whole, 0, "detect_repair on `fused`, everything included", "32x512", "", 3));
}

const Table policy_call_table("policy_call", "A warm call of a policy that does nothing (us)", measure_policy_calls);

}  // namespace
}  // namespace triage::bench
