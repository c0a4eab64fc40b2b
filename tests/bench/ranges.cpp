// What the check of an output with a declared range costs: a policy against the same one whose output declares nothing.
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <triage/runtime.h>

#include <functional>
#include <string>
#include <vector>

namespace triage::bench {
namespace {

constexpr int64_t range_shapes[][2] = {{32, 512}, {256, 1024}, {1024, 512}, {4096, 1024}};

/// `body` makes z of itself and of its flags f.
struct Checked {
  const char *name, *body;
  std::vector<const char*> ranges;
};
const std::vector<Checked> checked = {
    {"repaired", "", {"finite = true", "min = -10, max = 10", "max = 10"}},
    {"repaired, scaled", "z = z * 0.5 + 1", {"finite = true", "min = -10, max = 10"}},
    {"repaired, then a sigmoid", "z = z:sigmoid()", {"finite = true", "min = 0, max = 1"}},
    {"repaired, then 1 to 2", "z = z:sigmoid() + 1", {"min = 1, max = 2"}},
    {"repaired, then softmax", "z = z:softmax(-1)", {"min = 0, max = 1"}},
};

std::string source_of(const Checked& one, const std::string& range) {
  return fmt::format(
      "return policy {{ inputs = {{'z'}}, outputs = {{ {{name = 'z', {}}}, 'f' }}, fullgraph = true,\n"
      "  run = function(z)\n    local f = flag_nan_and_inf(z, 'z')\n    z, f = fix(z, f, 'z')\n    {}\n"
      "    return z, f\n  end }}",
      range, one.body);
}

void measure_ranges(const Add& add) {
  constexpr double most = 1.03;
  Runtime runtime;
  for (const Checked& one : checked)
    for (const auto& [rows, columns] : range_shapes) {
      const at::Tensor z = noise(rows, columns);
      std::vector<std::string> sources{source_of(one, "")};
      for (const char* const range : one.ranges) sources.push_back(source_of(one, range));
      std::vector<std::function<void()>> calls;
      for (const std::string& source : sources) {
        const Policy policy = runtime.load_source(source, "ranged.lua");
        policy.prepare({z});
        calls.emplace_back([policy, &z] { benchmark::DoNotOptimize(policy.run({z}).data()); });
      }
      const Timing timing = measure(calls);
      for (size_t i = 0; i < one.ranges.size(); ++i)
        add(line_of(timing, i + 1, fmt::format("{}: {}", one.name, one.ranges[i]), shape_name(rows, columns),
                    "undeclared", most));
    }
}

const Table ranges_table("ranges", "An output with a declared range, against the same one without (us)",
                         measure_ranges);

}  // namespace
}  // namespace triage::bench
