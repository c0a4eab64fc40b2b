// What one call of the `eager` backend's executable costs besides the operators: the identity graph (nothing but the
// interpreter's own way in and out), and one operator through it against the same operator called directly.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/backend.h>
#include <triage/graph.h>

namespace {

using triage::graph::parse;

void run_graph(benchmark::State& state, const char* text, std::vector<at::Tensor> inputs) {
  auto executable = triage::find_backend("eager")(parse(text), inputs);
  std::vector<at::Tensor> outputs;
  for (auto _ : state) {
    outputs.clear();
    executable->run(inputs, outputs);
    benchmark::DoNotOptimize(outputs.data());
  }
}

void eager_identity(benchmark::State& state) {
  run_graph(state, "graph identity(%z):\n  return %z\n", {at::ones({32, 512})});
}
BENCHMARK(eager_identity);

void eager_one_operator(benchmark::State& state) {
  run_graph(state, "graph one(%z):\n  %0 = aten::neg(%z)\n  return %0\n", {at::ones({8})});
}
BENCHMARK(eager_one_operator);

void direct_one_operator(benchmark::State& state) {
  at::Tensor z = at::ones({8});
  for (auto _ : state) benchmark::DoNotOptimize(at::neg(z));
}
BENCHMARK(direct_one_operator);

void eager_ten_operators(benchmark::State& state) {
  std::string text = "graph ten(%z):\n  %0 = aten::neg(%z)\n";
  for (int i = 1; i < 10; ++i) text += "  %" + std::to_string(i) + " = aten::neg(%" + std::to_string(i - 1) + ")\n";
  run_graph(state, (text + "  return %9\n").c_str(), {at::ones({8})});
}
BENCHMARK(eager_ten_operators);

}  // namespace
