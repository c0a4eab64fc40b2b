// `triage verify`: the laws of a recovery policy, tried on every kind of bad sample.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "bindings/cli/calls/under_check.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/commands/verify/verify_report.h"
#include "bindings/cli/terminal.h"
#include "bindings/lua/testing/verify_policy.h"

namespace triage::cli {
namespace {

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

}  // namespace

int run(const VerifyCommand& options) {
  lua::PolicyUnderCheck policy = under_check(options.call, options.json);
  policy.seed = options.seed;
  const std::string source = policy.source, path = policy.script.path;
  lua::LuaScript script(policy.source, policy.script);
  policy.promises = promises(script, options);
  policy.accumulation = script.accumulation();
  check_shared(options.shared, script.signature().inputs, options.call.policy);
  std::vector<std::string> left_out;
  std::vector<ExampleInputs> examples = examples_to_check(script, options.call, left_out);
  if (options.call.inputs.empty() && !examples.empty())
    for (ExampleInputs& form : lua::examples_of_forms(script.signature(), examples.back().params)) {
      for (at::Tensor& input : form.inputs) input = input.to(parse_device(options.call.device));
      examples.push_back(std::move(form));
    }
  auto progress = std::make_optional<Progress>();
  diagnose::LawsOptions laws{options.search, options.seed,
                             [&](const std::string& law) { progress->show(fmt::format("trying: {} ...", law)); }};
  Verification found =
      lua::verify(std::move(policy), script.name(), script.signature(), examples, options.shared, laws);
  found.left_out.insert(found.left_out.end(), left_out.begin(), left_out.end());
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
