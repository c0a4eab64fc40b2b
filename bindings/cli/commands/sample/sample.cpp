#include "bindings/cli/commands/sample/sample.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/limits.h"
#include "bindings/cli/calls/script_calls.h"
#include "bindings/cli/calls/under_check.h"
#include "bindings/cli/commands/sample/sample_report.h"
#include "bindings/cli/terminal.h"
#include "bindings/lua/testing/line_values.h"
#include "runtime/capture/force_eager.h"
#include "runtime/policy/state/state_file.h"
#include "runtime/policy/versions/version.h"
#include "runtime/random/sequence.h"

namespace triage::cli {

int run_sample(const RunCommand& options) {
  lua::PolicyUnderCheck policy = under_check(options.call, options.json);
  policy.script.print = prints_to(options.json ? stderr : stdout);
  Limits limits;
  limits.seconds = lua::seconds_by_line;
  policy.script.limits = parse_limits(options.call.limits, limits);
  const capture::ForceEager force_eager;  // functions that the script compiles are shown operator by operator, too
  random::Sequence numbers;
  const random::DrawFrom draws(&numbers);
  lua::LuaScript script(policy.source, policy.script);
  const Signature& signature = script.signature();
  const Params params = checked_params(options.call.params, signature, options.call.policy);
  ScriptCalls earlier(script, policy::param_tensors(signature, params));
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
