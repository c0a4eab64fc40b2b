#include "bindings/cli/calls/script_calls.h"

#include <triage/typing.h>

#include <memory>
#include <utility>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/flag_inputs.h"
#include "runtime/capture/hidden_results.h"

namespace triage::cli {

void ScriptCalls::begin_with(const policy::StateOfKeys& kept) {
  if (!kept.empty()) state_.before = kept.back().second;
}

void ScriptCalls::call(const std::vector<at::Tensor>& inputs) {
  const Signature& signature = script_.signature();
  std::vector<at::Tensor> outputs = script_.call(inputs, values_for(inputs), std::nullopt);
  capture::drop_hidden(signature, outputs);
  if (const auto failure = take_state(signature, inputs, state_, outputs))
    throw PolicyError(*failure, script_.definition().where);
  auto after = std::make_shared<policy::StateTensors>();
  for (size_t i = 0; i < state_.after.size(); ++i) after->emplace_back(signature.state[i].name, state_.after[i]);
  state_.before = std::move(after);
}

std::vector<at::Tensor> ScriptCalls::values_for(const std::vector<at::Tensor>& inputs) {
  begin_state(script_.signature(), inputs, state_);
  std::vector<at::Tensor> values = params_;
  values.insert(values.end(), state_.given.begin(), state_.given.end());
  return values;
}

namespace {

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

}  // namespace

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

}  // namespace triage::cli
