// What it costs to hold one call to its contract: the rules, and the bounds of memory and time. And what that makes of
// a call from a script, against the same script when it is trusted.
#include "runtime/operators/contract.h"
#include "table.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <benchmark/benchmark.h>
#include <triage/runtime.h>

#include <string>
#include <utility>
#include <vector>

namespace triage::bench {
namespace {

struct Checked {
  const char *name, *overload;
  std::vector<c10::IValue> arguments;
};

std::vector<Checked> checked_calls() {
  const at::Tensor x = at::randn({32, 64}), w = at::randn({64, 64}), b = at::randn({64});
  const at::Tensor index = at::zeros({32}, at::kLong);
  const c10::IValue none;
  return {{"aten::add", "Tensor", {x, x, 1}},
          {"aten::mul", "Tensor", {x, b}},
          {"aten::div", "Tensor", {x, x}},
          {"aten::relu", "", {x}},
          {"aten::where", "self", {x > 0, x, x}},
          {"aten::sum", "dim_IntList", {x, std::vector<int64_t>{1}, false, none}},
          {"aten::cat", "", {std::vector<at::Tensor>{x, x}, 0}},
          {"aten::view", "", {x, std::vector<int64_t>{-1, 32}}},
          {"aten::index_select", "", {x, 0, index}},
          {"aten::mm", "", {x, w}},
          {"aten::linear", "", {x, w, b}},
          {"aten::layer_norm", "", {x, std::vector<int64_t>{64}, b, b, 1e-5, true}}};
}

/// Calls that are over before a thousand of them took a microsecond tell little of themselves.
constexpr int repeats = 100;

void measure_checks(const Add& add) {
  for (const Checked& call : checked_calls()) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(call.name, call.overload);
    const operators::Contract* contract = operators::find_contract(call.name, call.overload);
    const auto& schema = op.schema();
    const Timing timing =
        measure({[&] {
                   for (int i = 0; i < repeats; ++i)
                     benchmark::DoNotOptimize(operators::violation(*contract, schema, call.arguments));
                 },
                 [&] {
                   for (int i = 0; i < repeats; ++i) {
                     benchmark::DoNotOptimize(operators::allocation_bound(*contract, schema, call.arguments));
                     benchmark::DoNotOptimize(operators::time_bound(*contract, schema, call.arguments));
                   }
                 }});
    for (size_t i = 0; i < 2; ++i) {
      Line line = line_of(timing, i, std::string(call.name).substr(6), i == 0 ? "rules" : "bounds", "", 100);
      line.took *= 1000.0 / repeats, line.spread *= 1000.0 / repeats, line.unit = "ns";
      add(line);
    }
  }
}

const Table checks("contracts", "Holding one call to its contract (ns)", measure_checks);

void measure_scripts(const Add& add) {
  constexpr int calls = 100;
  const at::Tensor z = at::randn({32, 64});
  RuntimeOptions options, trusting;
  options.limits.seconds = trusting.limits.seconds = 1e6;
  trusting.trusted = true;
  Runtime runtime(options), trusted(trusting);
  // A broken graph whose operators are called one by one: `triage.disable`d code runs as a plain script.
  for (const auto& [name, body] : std::vector<std::pair<std::string, std::string>>{{"add", "y = z + z"},
                                                                                   {"mm", "y = torch.mm(z, w)"},
                                                                                   {"sum", "y = z:sum(1)"},
                                                                                   {"cat", "y = torch.cat({z, z})"}}) {
    const std::string source =
        "local w = torch.ones({64, 64})\nlocal work = triage.disable(function(z)\n"
        "  local y\n  for i = 1, 100 do " +
        body +
        " end\n  return y\nend)\n"
        "return function(z) return work(z) end";
    const Policy held = runtime.load_source(source, name + ".lua"), free = trusted.load_source(source, name + ".lua");
    const Timing timing = measure({[&] { benchmark::DoNotOptimize(free.run({z}).data()); },
                                   [&] { benchmark::DoNotOptimize(held.run({z}).data()); }});
    Line line = line_of(timing, 1, name + " from a script", "32x64", "trusted", 1.1);
    line.took /= calls, line.spread /= calls, line.limit_took /= calls;
    add(line);
  }
}

const Table scripts("script_calls", "Calls of operators by a script that runs as it is (us)", measure_scripts);

}  // namespace
}  // namespace triage::bench
