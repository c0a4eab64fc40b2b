// The work that `./dev bench --torchguard` compares: the same policies and operations as tests/bench/against_torchguard.py runs with
// TorchGuard, on data made the same way. Benchmarks are named `torchguard/WORK/SHAPE`: policies on the fused backend. Of the
// policies there are also `torchguard_eager/...` (the eager backend), `torchguard_script/...` (the script, not captured) and
// `torchguard_limit/...` (what bounds it, alone: a read, a copy, or the one transcendental operator, into a warm buffer).
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/triage.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace triage::bench {
namespace {

constexpr int64_t SHAPES[][2] = {{32, 512}, {32, 1024}, {256, 1024}, {1024, 1024}, {4096, 1024}, {16384, 1024}};
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

void run_policy(benchmark::State& state, const char* source, const char* backend, int64_t rows, int64_t columns) {
  RuntimeOptions options;
  options.backend = backend;
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

void run_script(benchmark::State& state, const char* source, int64_t rows, int64_t columns) {
  ScriptOptions options;
  options.path = "torchguard_work.lua";
  const auto script = find_front_end(options.path)(source, options);
  const std::vector<at::Tensor> inputs = {noise(rows, columns)};
  at::NoGradGuard no_grad;
  for (auto _ : state) {
    auto outputs = script->call(inputs, {}, std::nullopt);
    benchmark::DoNotOptimize(outputs.data());
  }
}

using Limit = void (*)(const at::Tensor& data, at::Tensor& warm);
void read_all(const at::Tensor& data, at::Tensor&) { benchmark::DoNotOptimize(at::sum(data)); }
void copy_all(const at::Tensor& data, at::Tensor& warm) { warm.copy_(data); }
const std::map<std::string, Limit> LIMITS = {
    {"flag_nan", read_all},
    {"flag_nan_and_inf", read_all},
    {"detect_repair", copy_all},
    {"zscore_clip", copy_all},
    {"softmax_repair", [](const at::Tensor& data, at::Tensor& warm) { at::_softmax_out(warm, data, -1, false); }},
    {"branch", [](const at::Tensor& data, at::Tensor& warm) { at::tanh_out(warm, data); }},
};

void run_limit(benchmark::State& state, Limit limit, int64_t rows, int64_t columns) {
  const at::Tensor data = noise(rows, columns);
  at::Tensor warm = at::zeros_like(data);
  at::NoGradGuard no_grad;
  for (auto _ : state) limit(data, warm);
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

std::string name_of(const std::string& family, const std::string& work, int64_t rows, int64_t columns) {
  return family + "/" + work + "/" + std::to_string(rows) + (columns ? "x" + std::to_string(columns) : "");
}

const bool registered = [] {
  for (const auto& [rows, columns] : SHAPES) {
    for (const auto& [name, source] : POLICIES) {
      const auto named = [&, &work = name](const char* family) { return name_of(family, work, rows, columns); };
      benchmark::RegisterBenchmark(named("torchguard").c_str(), run_policy, source, "fused", rows, columns);
      benchmark::RegisterBenchmark(named("torchguard_eager").c_str(), run_policy, source, "eager", rows, columns);
      benchmark::RegisterBenchmark(named("torchguard_script").c_str(), run_script, source, rows, columns);
      benchmark::RegisterBenchmark(named("torchguard_limit").c_str(), run_limit, LIMITS.at(name), rows, columns);
    }
  }
  for (const int64_t rows : BATCHES) {
    for (const auto& [name, operation] : OPERATIONS)
      benchmark::RegisterBenchmark(name_of("torchguard", name, rows, 0).c_str(), run_operation, operation, rows);
  }
  return true;
}();

}  // namespace
}  // namespace triage::bench
