// The default backend against the script that it was captured from, after ten calls: never slower by
// more than a twentieth, for policies and functions that gain much and little, with and without graph breaks.
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/compiler_config.h>
#include <triage/runtime.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace triage::bench {
namespace {

constexpr int64_t batches[] = {1, 32, 256, 4096};
constexpr int64_t script_columns = 64;

/// Little work, or graph breaks: what is hardest to gain from.
const std::map<std::string, std::string> small = {
    {"one operator", "return function(z) return z:tanh() end"},
    {"two operators", "return function(z) return (z + 1):relu() end"},
    {"a sum", "return function(z) return z:sum(-1) end"},
    {"a view", "return function(z) return z:flatten(1) end"},
    {"nothing", "return function(z) return z end"},
    {"break, 1 + 1 operators", "return function(z) local y = z + 1; triage.graph_break(); return y:relu() end"},
    {"break, 2 + 2 operators", R"(
return function(z)
  local y = (z + 1):relu()
  triage.graph_break()
  return (y * 2):abs()
end)"},
    {"break on a number", R"(
return function(z)
  local y = z + 1
  if y:sum():item() > 1e30 then y = y * 0 end
  return y:relu()
end)"}};

/// Inputs of policies of the library that do not take one matrix.
std::vector<at::Tensor> inputs_of(const std::string& policy, int64_t rows) {
  if (policy == "index_range") return {at::randint(0, 50100, {rows, script_columns}, at::kLong)};
  if (policy == "masked_attention") return {at::randn({rows, 1, 8, 8})};
  if (policy == "repair_last_good") return {noise(rows, script_columns), at::randn({rows, script_columns})};
  if (policy == "repair_neighbour") return {noise(rows, script_columns).reshape({rows, 8, 8})};
  if (policy == "training_loss") return {at::rand({rows})};
  return {noise(rows, script_columns)};
}

void measure_program(const Add& add, const std::string& name, const Policy& policy) {
  for (const int64_t rows : batches) {
    const std::vector<at::Tensor> inputs = inputs_of(name, rows);
    for (int i = 0; i < 10; ++i) policy.run(inputs);
    const Timing timing = measure({[&] {
                                     set_stance(Stance::force_eager);
                                     benchmark::DoNotOptimize(policy.run(inputs).data());
                                     set_stance(Stance::default_stance);
                                   },
                                   [&] { benchmark::DoNotOptimize(policy.run(inputs).data()); }});
    add(line_of(timing, 1, name, std::to_string(rows) + (rows == 1 ? " row" : " rows"), "script", 1.05));
  }
}

void measure_programs(const Add& add) {
  Runtime runtime;
  for (const auto& [name, source] : small) measure_program(add, name, runtime.load_source(source, name));
  for (const auto& [name, work] : works()) measure_program(add, name, runtime.load_source(work.source, name));
  for (const auto& file : std::filesystem::directory_iterator(TRIAGE_SOURCE_DIR "/scripts/policies")) {
    const std::string name = file.path().stem().string();
    if (file.path().extension() == ".lua")
      measure_program(add, name == "zscore_clip" ? "library's zscore_clip" : name, runtime.load(file.path().string()));
  }
}

const Table script_table("script", "Programs on the default backend against their script (us)", measure_programs);

}  // namespace
}  // namespace triage::bench
