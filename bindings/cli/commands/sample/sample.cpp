#include "bindings/cli/commands/sample/sample.h"

#include <triage/typing.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/eagerly.h"
#include "bindings/cli/calls/flag_inputs.h"
#include "bindings/cli/calls/limits.h"
#include "bindings/cli/calls/under_check.h"
#include "bindings/cli/commands/sample/sample_report.h"
#include "bindings/cli/terminal.h"
#include "bindings/lua/testing/line_values.h"
#include "runtime/capture/hidden_results.h"
#include "runtime/policy/state/state_file.h"
#include "runtime/policy/state/state_of_call.h"
#include "runtime/policy/versions/version.h"
#include "runtime/random/sequence.h"

namespace triage::cli {
namespace {

/// The calls of a script before the one that is shown, which leave it their state.
class EarlierCalls {
 public:
  EarlierCalls(lua::LuaScript& script, std::vector<at::Tensor> params) : script_(script), params_(std::move(params)) {}

  void begin_with(const policy::StateOfKeys& kept) {
    if (!kept.empty()) state_.before = kept.back().second;
  }
  void call(const std::vector<at::Tensor>& inputs) {
    const Signature& signature = script_.signature();
    std::vector<at::Tensor> outputs = script_.call(inputs, values_for(inputs), std::nullopt);
    capture::drop_hidden(signature, outputs);
    if (const auto failure = take_state(signature, inputs, state_, outputs))
      throw PolicyError(*failure, script_.definition().where);
    auto after = std::make_shared<policy::StateTensors>();
    for (size_t i = 0; i < state_.after.size(); ++i) after->emplace_back(signature.state[i].name, state_.after[i]);
    state_.before = std::move(after);
  }
  /// What the next call gets behind its inputs.
  std::vector<at::Tensor> values_for(const std::vector<at::Tensor>& inputs) {
    begin_state(script_.signature(), inputs, state_);
    std::vector<at::Tensor> values = params_;
    values.insert(values.end(), state_.given.begin(), state_.given.end());
    return values;
  }

 private:
  lua::LuaScript& script_;
  std::vector<at::Tensor> params_;
  policy::StateOfCall state_;
};

/// A host gets this error before the script runs.
void check_types(const lua::LuaScript& script, const std::vector<at::Tensor>& inputs) {
  const Signature& signature = script.signature();
  TensorMatcher matcher("policy '" + script.name() + "'");
  for (size_t i = 0; i < signature.input_types.size(); ++i) {
    if (!signature.input_types[i]) continue;
    auto failure = matcher.match(inputs[i], *signature.input_types[i], {Subject::Role::input, signature.inputs[i]});
    if (failure && failure->kind != ValidationKind::validation) throw_validation(std::move(*failure));
  }
}

/// `codes`: names of codes in what is shown, to which those of flags from files come.
std::vector<at::Tensor> inputs_of(const CallOptions& options, const std::vector<std::string>& texts,
                                  const lua::LuaScript& script, CodeNames& codes) {
  const Signature& signature = script.signature();
  const c10::Device device = parse_device(options.device);
  std::vector<at::Tensor> inputs;
  for (const auto& [name, source] : match_inputs(texts, signature.inputs, options.policy))
    inputs.push_back(read_input({name, source, type_of(signature, name)}, device, codes));
  check_types(script, inputs);
  return inputs;
}

}  // namespace

int run_sample(const RunCommand& options) {
  lua::PolicyUnderCheck policy = under_check(options.call, options.json);
  policy.script.print = prints_to(options.json ? stderr : stdout);
  Limits limits;
  limits.seconds = lua::seconds_by_line;
  policy.script.limits = parse_limits(options.call.limits, limits);
  const Eagerly eagerly;  // functions that the script compiles are shown operator by operator, too
  random::Sequence numbers;
  const random::DrawFrom draws(&numbers);
  lua::LuaScript script(policy.source, policy.script);
  const Signature& signature = script.signature();
  const Params params = checked_params(options.call.params, signature, options.call.policy);
  EarlierCalls earlier(script, policy::param_tensors(signature, params));
  if (!options.state.empty() && std::filesystem::exists(options.state))
    earlier.begin_with(policy::read_state(options.state, script.name()));
  const auto calls = inputs_of_calls(options.call.inputs);
  CodeNames codes = signature.codes;
  for (size_t i = 0; i + 1 < calls.size(); ++i) earlier.call(inputs_of(options.call, calls[i], script, codes));
  const std::vector<at::Tensor> inputs = inputs_of(options.call, calls.back(), script, codes);
  const lua::CallByLine call(script, {lua::isolation_inputs(signature, inputs), earlier.values_for(inputs), codes});
  check_samples(options.samples, call, options.call.policy);
  if (options.json) {
    print_json({{"policy", script.name()},
                {"samples", samples_by_line_json(call, options.samples)},
                {"complete", call.complete()},
                {"error", call.failure().empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(call.failure())}});
  } else {
    for (const int64_t sample : options.samples) print_sample(script.name(), call.sample(sample));
    print_end(call);
  }
  return call.failure().empty() ? 0 : 1;
}

}  // namespace triage::cli
