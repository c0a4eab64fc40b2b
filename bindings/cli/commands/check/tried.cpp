#include "bindings/cli/commands/check/tried.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "bindings/cli/calls/under_check.h"
#include "bindings/lua/engine/policies/lua_script.h"
#include "bindings/lua/testing/isolation.h"
#include "runtime/diagnose/record_room.h"
#include "runtime/policy/versions/version.h"

namespace triage::cli {
namespace {

constexpr size_t most_examples = 4;

void note_room(const Policy& policy, const std::string& path, std::vector<CheckFinding>& warnings) {
  for (const CapturedGraph& captured : policy.graphs()) {
    const auto room = diagnose::too_little_room(*captured.graph);
    if (!room) continue;
    const int line = room->source.file == path ? room->source.line : 0;
    std::string message = fmt::format(
        "a sample can get {} entries in '{}', whose records have {} slots: this one is lost where they are taken. Keep "
        "the "
        "worst, with accumulation = {{priority = \"severity\", order = \"last\"}}; count what is lost, with "
        "track_overflow; or "
        "give records more slots, with num_slots",
        room->entries, room->output, room->slots);
    const auto is_same = [&](const CheckFinding& known) { return known.line == line && known.message == message; };
    if (std::none_of(warnings.begin(), warnings.end(), is_same)) warnings.push_back({line, 0, std::move(message)});
  }
}

/// Its tests' and its types'; a policy without these mostly takes rows of floats.
std::vector<ExampleInputs> examples_of(lua::LuaScript& script, const CallOptions& call) {
  const Signature& signature = script.signature();
  const bool is_typed = std::any_of(signature.input_types.begin(), signature.input_types.end(),
                                    [](const auto& type) { return type.has_value(); });
  if (script.test_count() == 0 && !is_typed)
    return {{"rows of floats", std::vector<at::Tensor>(signature.inputs.size(), at::randn({4, 8})),
             policy::param_tensors(signature, {})}};
  std::vector<std::string> left_out;
  std::vector<ExampleInputs> examples = examples_to_check(script, call, left_out);
  examples.resize(std::min(examples.size(), most_examples));
  return examples;
}

bool promises_gradients(const lua::LuaScript& script) {
  const auto& promises = script.promises();
  return promises && std::any_of(promises->begin(), promises->end(),
                                 [](const Promise& promise) { return promise.law == Law::gradients && promise.kept; });
}

}  // namespace

Tried try_policy(const std::string& file, const CheckCommand& options) {
  Tried tried;
  const auto is_function = [](const std::string& text) { return text.find('=') == std::string::npos; };
  if (std::any_of(options.given.begin(), options.given.end(), is_function)) return tried;
  CallOptions call;
  call.policy = file;
  call.given = options.given;
  call.limits = options.limits;
  try {
    lua::PolicyUnderCheck policy = under_check(call, /*json=*/false);
    policy.runtime.log = [](const LogRecord&) {};
    lua::LuaScript script(policy.source, policy.script);
    if (promises_gradients(script))
      tried.notes.push_back({script.definition().where.line, 0,
                             "it promises `gradients`, which hold for its own graph: in a model that is outside of it "
                             "a gradient of 0 times NaN is "
                             "NaN again, in the weights too. Repair bad samples before that model as well"});
    for (const ExampleInputs& example : examples_of(script, call)) {
      policy.params = example.params;
      lua::PolicySubject subject(policy);
      subject.call(example.inputs);
      note_room(subject.policy(), policy.script.path, tried.warnings);
    }
  } catch (const std::exception&) {  // `triage test` and `triage run` say what is wrong
  }
  return tried;
}

}  // namespace triage::cli
