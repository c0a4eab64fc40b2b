#include "bindings/cli/calls/under_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/given.h"
#include "bindings/cli/calls/limits.h"
#include "bindings/cli/terminal.h"

namespace triage::cli {

lua::PolicyUnderCheck under_check(const CallOptions& call, bool json) {
  check_backend(call.backend);
  lua::PolicyUnderCheck policy{read_source(call.policy), {}, quiet_runtime(json)};
  policy.runtime.backend = call.backend;
  policy.runtime.fullgraph = call.fullgraph;
  policy.runtime.masked_rows = masked_rows_from(call.masked_rows);
  policy.runtime.limits = parse_limits(call.limits);
  policy.runtime.print = [](const std::string&) {};
  policy.script.path = script_name(call.policy);
  policy.script.print = policy.runtime.print;
  policy.script.limits = policy.runtime.limits;
  policy.script.read_file = files_of(call.policy);
  const c10::Device device = parse_device(call.device);
  give(policy.script, call.given, device);
  policy.give = [given = call.given, device](Runtime& host) { define_given(host, given, device); };
  return policy;
}

void check_shared(const std::vector<std::string>& shared, const std::vector<std::string>& inputs,
                  const std::string& policy) {
  for (const std::string& name : shared)
    if (std::find(inputs.begin(), inputs.end(), name) == inputs.end())
      throw UsageError(fmt::format("--shared {}: {} has no such input{}", name, policy, did_you_mean(name, inputs)));
}

std::vector<ExampleInputs> examples_to_check(lua::LuaScript& script, const CallOptions& call,
                                             std::vector<std::string>& left_out) {
  std::vector<ExampleInputs> examples = examples_for(script, call);
  if (call.inputs.empty() && script.test_count() > 0) {
    auto example = example_of_types(script.signature(), call);
    const int64_t values = example ? lua::count_values(example->inputs) : 0;
    if (example && values <= lua::most_values_of_types)
      examples.push_back(std::move(*example));
    else if (example)
      left_out.push_back(fmt::format(
          "its declared types: the batch would have {} values, which takes long; give --input to check one", values));
  }
  const c10::Device device = parse_device(call.device);
  for (ExampleInputs& example : examples)
    for (at::Tensor& input : example.inputs) input = input.to(device);
  return examples;
}

}  // namespace triage::cli
