// The work that `./dev bench --torchguard` compares: the same policies and operations as
// tests/bench/against_torchguard.py runs with TorchGuard, on data made the same way. Benchmarks are named
// `torchguard/WORK/SHAPE`: policies on the fused backend. Of the policies there are also `torchguard_eager/...` (the
// eager backend), `torchguard_script/...` (the script, not captured) and `torchguard_limit/...` (what bounds it, alone:
// a read, a copy, or the one transcendental operator, into a warm buffer). TRIAGE_TEST_DEVICE=cuda puts the data on a
// GPU, where wall time counts: each benchmark ends when the GPU has done its work. There is `torchguard_graph/...` as
// well: the warm call as a CUDA graph, replayed.
#include "tests/cuda_graph.h"
#include "work.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <triage/triage.h>

#include <cstdlib>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace triage::bench {
namespace {

constexpr int64_t POLICY_SHAPES[][2] = {{32, 512},    {32, 1024},    {256, 1024}, {1024, 1024},
                                        {4096, 1024}, {16384, 1024}, {32, 152064}};
constexpr int64_t BATCHES[] = {32, 4096};

c10::Device device() {
  const char* const named = std::getenv("TRIAGE_TEST_DEVICE");
  return c10::Device(named ? named : "cpu");
}

at::Tensor data_of(int64_t rows, int64_t columns) { return noise(rows, columns).to(device()); }

/// A GPU works behind the calls: it is waited for after every 50.
template <class Call>
void repeat(benchmark::State& state, const Call& call) {
  if (device().is_cpu()) {
    for (auto _ : state) call();
    return;
  }
  const c10::impl::VirtualGuardImpl gpu(device().type());
  const auto finish = [&] { gpu.synchronizeStream(gpu.getStream(c10::Device(device().type(), 0))); };
  constexpr int calls = 50;
  for (int i = 0; i < calls; ++i) call();
  finish();
  while (state.KeepRunningBatch(calls)) {
    for (int i = 0; i < calls; ++i) call();
    finish();
  }
}

void run_policy(benchmark::State& state, const char* source, const char* backend, int64_t rows, int64_t columns) {
  RuntimeOptions options;
  options.backend = backend;
  Runtime runtime(options);
  const Policy policy = runtime.load_source(source, "torchguard_work.lua");
  const std::vector<at::Tensor> inputs = {data_of(rows, columns)};
  at::NoGradGuard no_grad;
  policy.prepare(inputs);
  repeat(state, [&] {
    auto outputs = policy.run(inputs);
    benchmark::DoNotOptimize(outputs.data());
  });
}

void replay_graph(benchmark::State& state, const char* source, int64_t rows, int64_t columns) {
  Runtime runtime;
  const Policy policy = runtime.load_source(source, "torchguard_work.lua");
  const std::vector<at::Tensor> inputs = {data_of(rows, columns)};
  at::NoGradGuard no_grad;
  policy.prepare(inputs);
  std::vector<at::Tensor> outputs = policy.run(inputs);
  test::CudaGraph graph([&] { outputs = policy.run(inputs); });
  repeat(state, [&] { graph.replay(); });
}

void run_script(benchmark::State& state, const char* source, int64_t rows, int64_t columns) {
  ScriptOptions options;
  options.path = "torchguard_work.lua";
  const auto script = find_front_end(options.path)(source, options);
  const std::vector<at::Tensor> inputs = {data_of(rows, columns)};
  at::NoGradGuard no_grad;
  repeat(state, [&] {
    auto outputs = script->call(inputs, {}, std::nullopt);
    benchmark::DoNotOptimize(outputs.data());
  });
}

void run_limit(benchmark::State& state, const Work& work, int64_t rows, int64_t columns) {
  const at::Tensor data = data_of(rows, columns);
  at::Tensor warm = at::zeros_like(data);
  at::NoGradGuard no_grad;
  repeat(state, [&] { work.run_limit(data, warm); });
}

struct Records {
  explicit Records(int64_t rows) : data(at::randn({rows, 8})), mask(at::rand({rows}) < 0.2), codes(mask.to(at::kLong)) {
    const auto empty = err::new_(data);
    first = err::push(empty, err::nan, 3, {.where = mask});
    second = err::push(empty, err::inf, 4, {.where = mask.logical_not()});
  }
  at::Tensor data, mask, codes, first, second;
};

using RecordOperation = at::Tensor (*)(const Records&);
const std::map<std::string, RecordOperation> OPERATIONS = {
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

void run_operation(benchmark::State& state, RecordOperation operation, int64_t rows) {
  const Records records(rows);
  at::NoGradGuard no_grad;
  for (auto _ : state) benchmark::DoNotOptimize(operation(records));
}

std::string name_of(const std::string& family, const std::string& work, int64_t rows, int64_t columns) {
  return family + "/" + work + "/" + std::to_string(rows) + (columns ? "x" + std::to_string(columns) : "");
}

const bool registered = [] {
  for (const auto& [rows, columns] : POLICY_SHAPES) {
    for (const auto& [name, work] : works()) {
      const auto named = [&work = name, &rows = rows, &columns = columns](const char* family) {
        return name_of(family, work, rows, columns);
      };
      benchmark::RegisterBenchmark(named("torchguard").c_str(), run_policy, work.source, "fused", rows, columns);
      benchmark::RegisterBenchmark(named("torchguard_eager").c_str(), run_policy, work.source, "eager", rows, columns);
      benchmark::RegisterBenchmark(named("torchguard_script").c_str(), run_script, work.source, rows, columns);
      if (device().is_cuda() && test::CudaGraph::available())
        benchmark::RegisterBenchmark(named("torchguard_graph").c_str(), replay_graph, work.source, rows, columns);
      benchmark::RegisterBenchmark(named("torchguard_limit").c_str(), run_limit, std::cref(work), rows, columns);
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
