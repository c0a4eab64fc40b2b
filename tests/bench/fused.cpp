// Policies through the fused backend against what bounds them: a read of the data, a copy into a warm buffer, or the one
// transcendental operator they contain, run alone into a warm buffer.
#include "table.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/runtime.h>

#include <cstdio>
#include <limits>

namespace triage::bench {
namespace {

constexpr const char* detect = "return function(z) return flag_nan_and_inf(z, 'logits') end";
constexpr const char* detect_repair = R"(
return function(z)
  local f = flag_nan_and_inf(z, "logits")
  return fix(z, f, "logits", {fallback = 0.0})
end)";
constexpr const char* zscore_clip = R"(
return function(z)
  local f = flag_nan_and_inf(z, "features")
  z = err.take_ok_p(f, z)
  local m, s = z:mean(-1, true), z:std(-1, {keepdim = true}) + 1e-6
  local far = (z - m):abs() > 3 * s
  f = push(f, err.VALUE_CLAMPED, "features", {where = far:any(-1)})
  return torch.where(far, m + 3 * s * torch.sign(z - m), z), f
end)";
constexpr const char* softmax_repair = R"(
return function(z)
  local f = flag_nan_and_inf(z, "logits")
  return err.take_ok_p(f, z:softmax(-1)), f
end)";
constexpr const char* branch = R"(
return function(z)
  local f = flag_nan_and_inf(z, "hidden")
  local y = IF(err.has_nan(f), function() return torch.zeros_like(z) end)
    :ELIF(err.has_inf(f), function() return z:nan_to_num(0.0, 1e4, -1e4):clamp(-10, 10) end)
    :ELSE(function() return z:tanh() end)
  return y, f
end)";

at::Tensor noise(int64_t rows, int64_t columns) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  at::Tensor z = at::randn({rows, columns});
  for (int64_t row = 0; row < rows; row += std::max<int64_t>(1, rows / 5)) z[row][row * 7 % columns] = infinity;
  return z;
}

struct Work {
  const char* name;
  const char* source;
  const char* limit;
  void (*run_limit)(const at::Tensor& z, at::Tensor& warm);
};

const Work works[] = {
    {"detect", detect, "read", [](const at::Tensor& z, at::Tensor&) { benchmark::DoNotOptimize(at::sum(z)); }},
    {"detect_repair", detect_repair, "copy", [](const at::Tensor& z, at::Tensor& warm) { warm.copy_(z); }},
    {"zscore_clip", zscore_clip, "copy", [](const at::Tensor& z, at::Tensor& warm) { warm.copy_(z); }},
    {"softmax_repair", softmax_repair, "softmax",
     [](const at::Tensor& z, at::Tensor& warm) { at::_softmax_out(warm, z, -1, false); }},
    {"branch", branch, "tanh", [](const at::Tensor& z, at::Tensor& warm) { at::tanh_out(warm, z); }},
};

void print_fused() {
  std::printf("Policies through the fused backend, against what bounds them\n%-16s %-10s %-8s %10s %10s %7s %12s\n", "",
              "shape", "limit", "limit, us", "fused, us", "ratio", "eager, us");
  RuntimeOptions options;
  options.backend = "fused";
  Runtime fused_runtime(options), eager_runtime;
  for (const Work& work : works) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{32, 512}, {256, 1024}, {4096, 1024}}) {
      const at::Tensor z = noise(rows, columns);
      at::Tensor warm = at::zeros_like(z);
      const Policy fused = fused_runtime.load_source(work.source), eager = eager_runtime.load_source(work.source);
      fused.prepare({z});
      eager.prepare({z});
      const Timing timing =
          measure({[&] { work.run_limit(z, warm); }, [&] { benchmark::DoNotOptimize(fused.run({z}).data()); },
                   [&] { benchmark::DoNotOptimize(eager.run({z}).data()); }});
      std::printf("%-16s %4lldx%-5lld %-8s %10.2f %10.2f %7.2f %12.2f\n", work.name, static_cast<long long>(rows),
                  static_cast<long long>(columns), work.limit, timing.micros[0], timing.micros[1], timing.ratio[1],
                  timing.micros[2]);
    }
  }
}

const Table fused_table("fused", print_fused);

}  // namespace
}  // namespace triage::bench
