// What a warm call costs above the work itself: guards, the policy handle, the interpreter. Goals: 1 us for the identity
// policy, 0.1 us for the guards of three tensors.
#include "runtime/capture/compiled.h"
#include "table.h"

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <triage/triage.h>

namespace {

using triage::bench::measure;
using triage::bench::Table;

constexpr const char* detect_repair = R"(
return function(z)
  local f = flag_nan_and_inf(z, "logits")
  return fix(z, f, "logits", {fallback = 0.0})
end)";

at::Tensor batch_with_bad_rows(int64_t rows, int64_t columns) {
  at::Tensor z = at::randn({rows, columns});
  for (int64_t row = 0; row < rows; row += std::max<int64_t>(1, rows / 5)) z[row][row % columns] = 0.0f / 0.0f;
  return z;
}

void print_calls() {
  triage::Runtime runtime;
  triage::Policy identity = runtime.load_source("return function(z) return z end", "identity.lua");
  at::Tensor z = batch_with_bad_rows(32, 512);
  std::vector<at::Tensor> one = {z}, three = {z, z, z};
  auto guards = triage::capture::Guards::of(three);
  identity.run(one);
  bool held = true;
  auto timing = measure({[&] { identity.run(one); }, [&] { held &= guards.hold(three); }});
  fmt::print("warm call through the eager backend\n");
  fmt::print("  identity policy              {:8.3f} us   (goal 1)\n", timing.micros[0]);
  fmt::print("  guards of three tensors      {:8.3f} us   (goal 0.1){}\n", timing.micros[1], held ? "" : "  NOT HELD");

  triage::Policy repair = runtime.load_source(detect_repair, "repair.lua");
  fmt::print("  detect and repair, against one read (at::sum) of the batch\n");
  for (auto [rows, columns] : {std::pair<int64_t, int64_t>{32, 512}, {256, 1024}, {4096, 1024}}) {
    std::vector<at::Tensor> inputs = {batch_with_bad_rows(rows, columns)};
    repair.run(inputs);
    auto cost = measure({[&] { at::sum(inputs[0]); }, [&] { repair.run(inputs); }});
    fmt::print("    {:5}x{:<5} {:10.2f} us   {:6.2f} x read\n", rows, columns, cost.micros[1], cost.ratio[1]);
  }
}

const Table table("warm_call", print_calls);

}  // namespace
