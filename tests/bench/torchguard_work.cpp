// The work that `./dev bench --torchguard` compares: the same policies and operations as tests/bench/against_torchguard.py runs with
// TorchGuard, on data made the same way. Benchmarks are named `torchguard/WORK/SHAPE`.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/triage.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace triage::bench {
namespace {

constexpr int64_t SHAPES[][2] = {{32, 512}, {256, 1024}, {4096, 1024}};
constexpr int64_t BATCHES[] = {32, 4096};

const std::map<std::string, const char*> POLICIES = {
    {"flag_nan", "return function(x) return flag_nan(x, 7) end"},
    {"flag_nan_and_inf", "return function(x) return flag_nan_and_inf(x, 7) end"},
    {"detect_repair", R"(
return function(x)
  local f = flag_nan_and_inf(x, 7)
  return fix(x, f, 7, {fallback = 0.0})
end)"},
    {"zscore_clip", R"(
return function(x)
  local f = flag_nan_and_inf(x, 7)
  x = err.take_ok_p(f, x)
  local mean = x:mean({-1}, true)
  local deviation = x:std({-1}, true, true) + 1e-6
  local far = (x - mean):abs() > deviation * 3
  f = push(f, err.VALUE_CLAMPED, 7, {where = far:any(-1)})
  return torch.where(far, mean + deviation * 3 * torch.sign(x - mean), x), f
end)"},
    {"softmax_repair", R"(
return function(x)
  local f = flag_nan_and_inf(x, 7)
  return err.take_ok_p(f, x:softmax(-1), 1 / x:size(1)), f
end)"},
    {"branch", R"(
return function(x)
  local f = flag_nan_and_inf(x, 7)
  local y = IF(err.has_nan(f), function() return torch.zeros_like(x) end)
    :ELIF(err.has_inf(f), function() return torch.nan_to_num(x, 0.0, 1e4, -1e4):clamp(-10, 10) end)
    :ELSE(function() return torch.tanh(x) end)
  return y, f
end)"},
};

// Noise of which about five rows hold a NaN or an infinity.
at::Tensor noise(int64_t rows, int64_t columns) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity};
  auto x = at::randn({rows, columns});
  for (int64_t row = 0; row < rows; row += std::max<int64_t>(1, rows / 5)) x[row][row * 7 % columns] = bad[row % 3];
  return x;
}

void run_policy(benchmark::State& state, const char* source, int64_t rows, int64_t columns) {
  RuntimeOptions options;
  options.backend = "fused";
  Runtime runtime(options);
  const Policy policy = runtime.load_source(source, "torchguard_work.lua");
  const std::vector<at::Tensor> inputs = {noise(rows, columns)};
  at::NoGradGuard no_grad;
  policy.prepare(inputs);
  for (auto _ : state) {
    auto outputs = policy.run(inputs);
    benchmark::DoNotOptimize(outputs.data());
  }
}

struct Records {
  explicit Records(int64_t rows) : data(at::randn({rows, 8})), mask(at::rand({rows}) < 0.2), codes(mask.to(at::kLong)) {
    const auto empty = err::new_(data);
    first = err::push(empty, err::nan, 3, {.where = mask});
    second = err::push(empty, err::inf, 4, {.where = mask.logical_not()});
  }
  at::Tensor data, mask, codes, first, second;
};

using Operation = at::Tensor (*)(const Records&);
const std::map<std::string, Operation> OPERATIONS = {
    {"new", [](const Records& r) { return err::new_(r.data); }},
    {"push(where)", [](const Records& r) { return err::push(r.first, err::nan, 3, {.where = r.mask}); }},
    {"push(codes)", [](const Records& r) { return err::push(r.first, r.codes, 3); }},
    {"merge",
     [](const Records& r) {
       return err::merge({r.first, r.second});
     }},
    {"is_ok", [](const Records& r) { return err::is_ok(r.first); }},
    {"has_code", [](const Records& r) { return err::has_code(r.first, err::nan); }},
    {"count_errors", [](const Records& r) { return err::count_errors(r.first); }},
};

void run_operation(benchmark::State& state, Operation operation, int64_t rows) {
  const Records records(rows);
  at::NoGradGuard no_grad;
  for (auto _ : state) benchmark::DoNotOptimize(operation(records));
}

void run_read(benchmark::State& state, int64_t rows, int64_t columns) {
  const auto x = noise(rows, columns);
  for (auto _ : state) benchmark::DoNotOptimize(at::sum(x));
}

std::string name_of(const std::string& work, int64_t rows, int64_t columns) {
  return "torchguard/" + work + "/" + std::to_string(rows) + (columns ? "x" + std::to_string(columns) : "");
}

const bool registered = [] {
  for (const auto& [rows, columns] : SHAPES) {
    benchmark::RegisterBenchmark(name_of("read", rows, columns).c_str(), run_read, rows, columns);
    for (const auto& [name, source] : POLICIES)
      benchmark::RegisterBenchmark(name_of(name, rows, columns).c_str(), run_policy, source, rows, columns);
  }
  for (const int64_t rows : BATCHES) {
    for (const auto& [name, operation] : OPERATIONS)
      benchmark::RegisterBenchmark(name_of(name, rows, 0).c_str(), run_operation, operation, rows);
  }
  return true;
}();

}  // namespace
}  // namespace triage::bench
