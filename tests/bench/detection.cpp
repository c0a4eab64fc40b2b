// Detection against one plain read of the same bytes (at::sum of floats).
#include "table.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/flags.h>

#include <cstdio>
#include <limits>
#include <vector>

namespace triage::bench {
namespace {

constexpr Shape SHAPES[] = {{32, 512}, {256, 1024}, {4096, 1024}};

// Noise of which about one row in a hundred holds a NaN or an Inf.
at::Tensor noise(Shape shape, at::ScalarType dtype) {
  auto z = at::randn({shape.rows, shape.columns});
  for (int64_t row = 7; row < shape.rows; row += 100) {
    z[row][row % shape.columns] =
        row % 2 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  }
  return z.to(dtype);
}

at::Tensor floats_of_as_many_bytes(const at::Tensor& z) {
  return at::randn({static_cast<int64_t>(z.numel() * static_cast<int64_t>(z.element_size()) / 4)});
}

void detection_table() {
  print_head(
      "Detection against one read of the same bytes (goal: 1.1 x in cache, 1.2 x beyond, above a floor of 0.5 us)",
      "read us");
  at::NoGradGuard no_grad;
  for (const Shape shape : SHAPES) {
    const double goal = shape.rows < 4096 ? 1.1 : 1.2;
    for (auto dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
      const auto z = noise(shape, dtype), plain = floats_of_as_many_bytes(z);
      const auto timing =
          measure({[&] { benchmark::DoNotOptimize(at::sum(plain)); }, [&] { benchmark::DoNotOptimize(flag_nan(z, 1)); },
                   [&] { benchmark::DoNotOptimize(flag_inf(z, 1)); },
                   [&] { benchmark::DoNotOptimize(flag_nan_and_inf(z, 1)); }});
      print_row(shape, c10::toString(dtype), {"read", "flag_nan", "flag_inf", "flag_nan_and_inf"}, timing, goal);
    }
    for (auto dtype : {at::kLong, at::kInt}) {
      const auto ids = at::randint(0, 50000, {shape.rows, shape.columns}).to(dtype),
                 plain = floats_of_as_many_bytes(ids);
      const auto timing = measure({[&] { benchmark::DoNotOptimize(at::sum(plain)); },
                                   [&] { benchmark::DoNotOptimize(flag_oob_indices(ids, 49990, 1)); }});
      print_row(shape, c10::toString(dtype), {"read", "flag_oob_indices"}, timing, goal);
    }
  }
}

// The table of TorchGuard's README: records of several widths for 32 samples, and detection in (32, 512) data as its `push`.
void slots_table() {
  std::printf("\nOperations by the slots of a record, 32 samples, us\n%-6s %9s %9s %9s %9s\n", "slots", "new", "push",
              "merge(2)", "is_ok");
  at::NoGradGuard no_grad;
  const auto z = noise({32, 512}, at::kFloat);
  for (const int64_t slots : {4, 16, 64, 256}) {
    ErrorConfig config;
    config.num_slots = slots;
    const auto f = flag_nan(z, 1, {}, {config}), other = flag_inf(z, 2, {}, {config});
    const auto timing = measure({[&] { benchmark::DoNotOptimize(err::new_(z, {config})); },
                                 [&] { benchmark::DoNotOptimize(flag_nan(z, 3, f, {config})); },
                                 [&] {
                                   benchmark::DoNotOptimize(err::merge({f, other}, {config}));
                                 },
                                 [&] { benchmark::DoNotOptimize(err::is_ok(f)); }});
    std::printf("%-6ld %9.2f %9.2f %9.2f %9.2f\n", slots, timing.micros[0], timing.micros[1], timing.micros[2],
                timing.micros[3]);
  }
}

const Table detection("detection", detection_table);
const Table slots_of_records("slots", slots_table);

void detect(benchmark::State& state) {
  const auto z = noise({state.range(0), state.range(1)}, at::kFloat);
  for (auto _ : state) benchmark::DoNotOptimize(flag_nan_and_inf(z, 1));
  state.SetBytesProcessed(state.iterations() * z.numel() * 4);
}
BENCHMARK(detect)->Name("flag_nan_and_inf")->Args({32, 512})->Args({256, 1024})->Args({4096, 1024});

void read(benchmark::State& state) {
  const auto z = noise({state.range(0), state.range(1)}, at::kFloat);
  for (auto _ : state) benchmark::DoNotOptimize(at::sum(z));
  state.SetBytesProcessed(state.iterations() * z.numel() * 4);
}
BENCHMARK(read)->Name("plain read")->Args({32, 512})->Args({256, 1024})->Args({4096, 1024});

}  // namespace
}  // namespace triage::bench
