// The policies for language models on the logits of 32 requests, in all ways to run them, against one read of the
// logits.
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/compiler_config.h>
#include <triage/runtime.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace triage::bench {
namespace {

constexpr int64_t serving_rows = 32, vocabulary = 152'064, history = 256;

struct Measured {
  const char* name;
  Tensors clean;
  std::function<void(Tensors&)> spoil;  // makes row 3 what the policy is for
};

Tensors copies(const Tensors& tensors) {
  Tensors copied;
  for (const at::Tensor& tensor : tensors) copied.push_back(tensor.clone());
  return copied;
}

std::vector<Measured> policies() {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const at::Tensor logits = at::randn({serving_rows, vocabulary}) * 4;
  const at::Tensor tokens = at::randint(0, 50'000, {serving_rows, history}, at::kLong);
  return {
      {"nan_rows", {logits}, [=](Tensors& all) { all[0][3].slice(0, 0, 100).fill_(nan); }},
      {"masked_rows", {logits}, [=](Tensors& all) { all[0][3].fill_(-infinity); }},
      {"flat_distribution", {logits}, [](Tensors& all) { all[0][3].zero_(); }},
      {"token_range", {tokens}, [](Tensors& all) { all[0][3][5] = -1; }},
      {"repetition", {logits, tokens}, [](Tensors& all) { all[1][3].fill_(7); }},
      {"temperature_floor", {logits, at::full({serving_rows}, 0.7)}, [=](Tensors& all) { all[1][3] = nan; }},
      {"quarantine",
       {logits, at::zeros({serving_rows}, at::kChar), at::arange(serving_rows)},
       [](Tensors& all) { all[1][3] = 2; }},  // it ends from the third call on
  };
}

Policy load_serving(const std::string& name, const char* backend) {
  RuntimeOptions options;
  options.backend = backend;
  return Runtime(options).load(TRIAGE_SOURCE_DIR "/scripts/policies/serving/" + name + ".lua");
}

void measure_batch(const Add& add, const Measured& policy, const Tensors& inputs, const char* batch) {
  const Policy eager = load_serving(policy.name, "eager"), fused = load_serving(policy.name, "fused");
  for (int i = 0; i < 5; ++i) eager.run(inputs), fused.run(inputs);
  const Timing timing = measure({[&] { benchmark::DoNotOptimize(at::sum(inputs[0])); },
                                 [&] {
                                   set_stance(Stance::force_eager);
                                   benchmark::DoNotOptimize(fused.run(inputs).data());
                                   set_stance(Stance::default_stance);
                                 },
                                 [&] { benchmark::DoNotOptimize(eager.run(inputs).data()); },
                                 [&] { benchmark::DoNotOptimize(fused.run(inputs).data()); }});
  const char* ways[] = {"script", "captured", "fused"};
  for (size_t way = 0; way < 3; ++way)
    add(line_of(timing, way + 1, std::string(policy.name) + ": " + ways[way], batch, "read"));
}

void measure_serving(const Add& add) {
  for (const Measured& policy : policies()) {
    measure_batch(add, policy, policy.clean, "clean");
    Tensors bad = copies(policy.clean);
    policy.spoil(bad);
    measure_batch(add, policy, bad, "one bad row");
  }
}

const Table serving_table("serving", "Policies for language models, 32 rows of 152,064 logits, against one read (us)",
                          measure_serving);

}  // namespace
}  // namespace triage::bench
