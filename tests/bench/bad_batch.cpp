// Every policy of the library on a batch in which each sample is bad, against the same batch without a bad sample: the
// cost of a call is that of the data, not of the errors in it.
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/runtime.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace triage::bench {
namespace {

namespace fs = std::filesystem;

constexpr double most = 3;

/// A NaN, an Inf or a -Inf in each sample.
at::Tensor all_bad(const at::Tensor& clean) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity};
  at::Tensor z = clean.clone();
  const at::Tensor flat = z.view({z.size(0), -1});
  for (int64_t row = 0; row < z.size(0); ++row) flat[row][row * 7 % flat.size(1)] = bad[row % 3];
  return z;
}

/// What the policy takes, with as many numbers as 256x1024 has, or as many samples.
Tensors clean_inputs(const std::string& policy) {
  if (policy == "index_range") return {at::randint(0, 50000, {rows, columns}, at::kLong)};
  if (policy == "masked_attention") return {at::randn({rows, 4, 16, 16})};
  if (policy == "repair_last_good") return {at::randn({rows, columns}), at::randn({rows, columns})};
  if (policy == "repair_neighbour") return {at::randn({rows, 32, 32})};
  if (policy == "training_loss") return {at::rand({rows * columns})};
  if (policy == "probabilities") return {at::softmax(at::randn({rows, columns}), -1)};
  if (policy == "gradients") return {at::randn({rows, columns}) * 1e-3};
  if (policy == "saturation") return {at::rand({rows, columns}) * 0.5};
  return {at::randn({rows, columns})};
}

/// Samples that are bad in the way that this policy is for, where NaN and Inf are not it.
const std::map<std::string, std::pair<const char*, std::function<at::Tensor(const at::Tensor&)>>> own_errors = {
    {"clamp", {"beyond a limit", [](const at::Tensor& z) { return z * 100; }}},
    {"constant_output", {"constant", [](const at::Tensor& z) { return at::ones_like(z); }}},
    {"gradients", {"too long", [](const at::Tensor& z) { return z * 1e6; }}},
    {"probabilities", {"not of sum 1", [](const at::Tensor& z) { return z * 3; }}},
    {"robust_scale", {"frozen", [](const at::Tensor& z) { return at::ones_like(z); }}},
    {"saturation", {"saturated", [](const at::Tensor& z) { return at::ones_like(z); }}},
    {"zscore_clip",
     {"with a spike",
      [](const at::Tensor& z) {
        at::Tensor spiked = z.clone();
        spiked.select(1, 5).fill_(100);
        return spiked;
      }}},
    {"masked_attention",
     {"queries that see nothing",
      [](const at::Tensor& z) { return at::full_like(z, -std::numeric_limits<double>::infinity()); }}},
};

Tensors bad_inputs(const std::string& policy, Tensors inputs) {
  inputs[0] = policy == "index_range" ? inputs[0].neg() - 1 : all_bad(inputs[0]);
  return inputs;
}

std::string shape_of(const at::Tensor& tensor) {
  std::string shape;
  for (const int64_t size : tensor.sizes()) shape += (shape.empty() ? "" : "x") + std::to_string(size);
  return shape;
}

void measure_bad_batch(const Add& add, const std::string& line, const Policy& policy, const Tensors& clean,
                       const Tensors& bad) {
  for (int i = 0; i < 5; ++i) policy.run(clean), policy.run(bad);
  const Timing timing = measure({[&] { benchmark::DoNotOptimize(policy.run(clean).data()); },
                                 [&] { benchmark::DoNotOptimize(policy.run(bad).data()); }});
  add(line_of(timing, 1, line, shape_of(clean[0]), "clean", most));
}

void measure_bad_batches(const Add& add) {
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(TRIAGE_SOURCE_DIR "/scripts/policies"))
    if (file.path().extension() == ".lua") files.push_back(file.path());
  std::sort(files.begin(), files.end());
  Runtime runtime;
  for (const fs::path& file : files) {
    const std::string name = file.stem().string();
    const Policy policy = runtime.load(file);
    const Tensors clean = clean_inputs(name);
    measure_bad_batch(add, name, policy, clean, bad_inputs(name, clean));
    const auto own = own_errors.find(name);
    if (own == own_errors.end()) continue;
    Tensors bad = clean;
    bad[0] = own->second.second(clean[0]);
    measure_bad_batch(add, name + ": " + own->second.first, policy, clean, bad);
  }
}

const Table bad_batch_table("bad_batch", "The policy library: every sample bad, against none (us)",
                            measure_bad_batches);

}  // namespace
}  // namespace triage::bench
