// `triage verify`: the laws of a recovery policy, tried on every kind of bad sample.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/given.h"
#include "bindings/cli/calls/inputs.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/commands/verify/verify_report.h"
#include "bindings/cli/terminal.h"
#include "bindings/lua/testing/verify_policy.h"

namespace triage::cli {
namespace {

lua::PolicyUnderCheck under_check(const VerifyCommand& options, c10::Device device) {
  check_backend(options.call.backend);
  lua::PolicyUnderCheck policy{read_source(options.call.policy), {}, quiet_runtime(options.json)};
  policy.runtime.backend = options.call.backend;
  policy.runtime.fullgraph = options.call.fullgraph;
  policy.runtime.masked_rows = masked_rows_from(options.call.masked_rows);
  policy.runtime.print = [](const std::string&) {};  // once for each of hundreds of calls
  policy.seed = options.seed;
  policy.script.path = script_name(options.call.policy);
  policy.script.print = policy.runtime.print;
  policy.script.read_file = files_of(options.call.policy);
  give(policy.script, options.call.given, device);
  policy.give = [&options, device](Runtime& host) { define_given(host, options.call.given, device); };
  return policy;
}

/// What the policy promises; with `--law` these laws alone, whatever it says of others.
std::vector<Promise> promises(const lua::LuaScript& script, const VerifyCommand& options) {
  std::vector<Promise> all = script.promises().value_or(std::vector<Promise>());
  if (options.laws.empty()) return all;
  std::vector<std::string> names;
  for (const Law law : all_laws) names.emplace_back(to_string(law));
  for (const std::string& name : options.laws)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw UsageError(fmt::format("--law {}: there is no such law{}; the laws are {}", name, did_you_mean(name, names),
                                   fmt::join(names, ", ")));
  std::vector<Promise> asked;
  for (const Law law : all_laws) {
    const bool is_asked = std::find(options.laws.begin(), options.laws.end(), to_string(law)) != options.laws.end();
    const auto said = std::find_if(all.begin(), all.end(), [&](const Promise& promise) { return promise.law == law; });
    asked.push_back(is_asked && said != all.end() && said->kept ? *said : Promise{law, is_asked, {}});
  }
  return asked;
}

std::vector<lua::VerifyBatch> batches(lua::LuaScript& script, const VerifyCommand& options, c10::Device device) {
  std::vector<Example> examples = examples_for(script, options.call);
  if (options.call.inputs.empty() && script.test_count() > 0)
    if (auto example = example_of_types(script.signature(), options.call)) examples.push_back(std::move(*example));
  std::vector<lua::VerifyBatch> batches;
  for (Example& example : examples) {
    for (at::Tensor& input : example.inputs) input = input.to(device);
    batches.push_back({example.from, std::move(example.inputs), std::move(example.params)});
  }
  return batches;
}

}  // namespace

int run(const VerifyCommand& options) {
  const c10::Device device = parse_device(options.call.device);
  lua::PolicyUnderCheck policy = under_check(options, device);
  const std::string source = policy.source, path = policy.script.path;
  lua::LuaScript script(policy.source, policy.script);
  policy.promises = promises(script, options);
  for (const std::string& name : options.shared)
    if (const auto& inputs = script.signature().inputs; std::find(inputs.begin(), inputs.end(), name) == inputs.end())
      throw UsageError(
          fmt::format("--shared {}: {} has no such input{}", name, options.call.policy, did_you_mean(name, inputs)));
  auto progress = std::make_optional<Progress>();
  diagnose::LawsOptions laws{options.search, options.seed,
                             [&](const std::string& law) { progress->show(fmt::format("trying: {} ...", law)); }};
  Verification found = lua::verify(std::move(policy), script.name(), script.signature(),
                                   batches(script, options, device), options.shared, laws);
  progress.reset();
  std::erase_if(found.laws, [&](const LawResult& law) {
    return !options.laws.empty() &&
           std::find(options.laws.begin(), options.laws.end(), to_string(law.law)) == options.laws.end();
  });
  if (options.json)
    print_json(to_json(found));
  else
    print(found, path, source);
  return found.ok() ? 0 : 1;
}

}  // namespace triage::cli
