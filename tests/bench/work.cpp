#include "work.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <limits>

namespace triage::bench {
namespace {

void read_all(const at::Tensor& data, at::Tensor&) { benchmark::DoNotOptimize(at::sum(data)); }
void copy_all(const at::Tensor& data, at::Tensor& warm) { warm.copy_(data); }

}  // namespace

const std::map<std::string, Work>& works() {
  static const std::map<std::string, Work> all = {
      {"flag_nan", {"return function(x) return flag_nan(x, 7) end", "read", read_all}},
      {"flag_nan_and_inf", {"return function(x) return flag_nan_and_inf(x, 7) end", "read", read_all}},
      {"plain_repair",  // without flags
       {R"(
return function(x)
  local bad = ~torch.isfinite(x):all(-1)
  return torch.where(bad:unsqueeze(1), torch.zeros_like(x), x), bad
end)",
        "copy", copy_all}},
      {"detect_repair",
       {R"(
return function(x)
  local f = flag_nan_and_inf(x, 7)
  return fix(x, f, 7, {fallback = 0.0})
end)",
        "copy", copy_all}},
      {"zscore_clip",
       {R"(
return function(x)
  local f = flag_nan_and_inf(x, 7)
  x = err.take_ok_p(f, x)
  local mean = x:mean({-1}, true)
  local deviation = x:std({-1}, true, true) + 1e-6
  local far = (x - mean):abs() > deviation * 3
  f = push(f, err.VALUE_CLAMPED, 7, {where = far:any(-1)})
  return torch.where(far, mean + deviation * 3 * torch.sign(x - mean), x), f
end)",
        "copy", copy_all}},
      {"softmax_repair",
       {R"(
return function(x)
  local f = flag_nan_and_inf(x, 7)
  return err.take_ok_p(f, x:softmax(-1), 1 / x:size(1)), f
end)",
        "softmax", [](const at::Tensor& data, at::Tensor& warm) { at::_softmax_out(warm, data, -1, false); }}},
      {"branch",
       {R"(
return function(x)
  local f = flag_nan_and_inf(x, 7)
  local y = IF(err.has_nan(f), function() return torch.zeros_like(x) end)
    :ELIF(err.has_inf(f), function() return torch.nan_to_num(x, 0.0, 1e4, -1e4):clamp(-10, 10) end)
    :ELSE(function() return torch.tanh(x) end)
  return y, f
end)",
        "tanh", [](const at::Tensor& data, at::Tensor& warm) { at::tanh_out(warm, data); }}},
  };
  return all;
}

at::Tensor noise(int64_t rows, int64_t columns) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity};
  at::Tensor x = at::randn({rows, columns});
  for (int64_t row = 0; row < rows; row += std::max<int64_t>(1, rows / 5)) x[row][row * 7 % columns] = bad[row % 3];
  return x;
}

}  // namespace triage::bench
