// Detection against one plain read of as many bytes (at::sum of floats).
#include "table.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/flags.h>

#include <initializer_list>
#include <limits>
#include <string>

namespace triage::bench {
namespace {

struct Shape {
  int64_t rows, columns;
};
constexpr Shape DETECTION_SHAPES[] = {{32, 512}, {256, 1024}, {4096, 1024}};

// Noise of which about one row in a hundred holds a NaN or an Inf.
at::Tensor noise_of(Shape shape, at::ScalarType dtype) {
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

void measure_detection(const Add& add) {
  at::NoGradGuard no_grad;
  for (const Shape shape : DETECTION_SHAPES) {
    const double goal = shape.rows < 4096 ? 1.1 : 1.2;
    const auto lines = [&](const Timing& timing, at::ScalarType dtype, std::initializer_list<const char*> names) {
      size_t i = 0;
      for (const char* name : names)
        add(line_of(timing, ++i, std::string(name) + ", " + c10::toString(dtype), shape_name(shape.rows, shape.columns),
                    "read", goal, 0.5));
    };
    for (auto dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
      const auto z = noise_of(shape, dtype), plain = floats_of_as_many_bytes(z);
      const auto timing =
          measure({[&] { benchmark::DoNotOptimize(at::sum(plain)); }, [&] { benchmark::DoNotOptimize(flag_nan(z, 1)); },
                   [&] { benchmark::DoNotOptimize(flag_inf(z, 1)); },
                   [&] { benchmark::DoNotOptimize(flag_nan_and_inf(z, 1)); }});
      lines(timing, dtype, {"flag_nan", "flag_inf", "flag_nan_and_inf"});
    }
    for (auto dtype : {at::kLong, at::kInt}) {
      const auto ids = at::randint(0, 50000, {shape.rows, shape.columns}).to(dtype),
                 plain = floats_of_as_many_bytes(ids);
      const auto timing = measure({[&] { benchmark::DoNotOptimize(at::sum(plain)); },
                                   [&] { benchmark::DoNotOptimize(flag_oob_indices(ids, 49990, 1)); }});
      lines(timing, dtype, {"flag_oob_indices"});
    }
  }
}

const Table detection("detection", "Detection against one read of as many bytes (us; the floor of an operation is 0.5)",
                      measure_detection);

void detect(benchmark::State& state) {
  const auto z = noise_of({state.range(0), state.range(1)}, at::kFloat);
  for (auto _ : state) benchmark::DoNotOptimize(flag_nan_and_inf(z, 1));
  state.SetBytesProcessed(state.iterations() * z.numel() * 4);
}
BENCHMARK(detect)->Name("flag_nan_and_inf")->Args({32, 512})->Args({256, 1024})->Args({4096, 1024});

void read(benchmark::State& state) {
  const auto z = noise_of({state.range(0), state.range(1)}, at::kFloat);
  for (auto _ : state) benchmark::DoNotOptimize(at::sum(z));
  state.SetBytesProcessed(state.iterations() * z.numel() * 4);
}
BENCHMARK(read)->Name("plain read")->Args({32, 512})->Args({256, 1024})->Args({4096, 1024});

}  // namespace
}  // namespace triage::bench
