#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>
#include <triage/graph.h>

#include <optional>
#include <set>
#include <utility>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/script_calls.h"
#include "bindings/cli/calls/under_check.h"
#include "bindings/cli/commands/statistics/counted_values.h"
#include "bindings/cli/terminal.h"
#include "bindings/lua/testing/isolation.h"
#include "runtime/capture/force_eager.h"
#include "runtime/diagnose/isolation/recording.h"
#include "runtime/diagnose/operator_watch.h"
#include "runtime/diagnose/script_graph.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/policy/versions/version.h"
#include "runtime/random/sequence.h"

namespace triage::cli {
namespace {

/// Counts the floating results of the operators that a script calls, as one batch. A view is not counted: its values
/// are those of what it shows.
class CountedCalls {
 public:
  CountedCalls(const lua::LuaScript& script, ValueCollector::Batch& batch, int64_t& uncounted)
      : script_(script),
        batch_(batch),
        uncounted_(uncounted),
        watch_([this](const at::RecordFunction& call, const c10::OperatorName& name) { return begun(call, name); },
               [this](size_t number, const at::RecordFunction& call) { count(calls_[number], call); }) {}

 private:
  struct Counted {
    std::string location;
    std::optional<c10::OperatorHandle> op;
    std::set<const void*> given;  // storages of its inputs, if it may give a view
  };

  size_t begun(const at::RecordFunction& call, const c10::OperatorName& name) {
    const Source line = script_.current_line();
    const std::string place = line.file.empty() ? "" : fmt::format("{}:{} ", line.file, line.line);
    Counted counted{place + name.name, {}, {}};
    if (const auto op = c10::Dispatcher::singleton().findSchema(name)) counted.op = *op;
    if (counted.op && diagnose::is_view(counted.op->schema()))
      for (const c10::IValue& input : call.inputs())  // which may be gone when it ends
        diagnose::for_each_tensor(input, [&](const at::Tensor& tensor) { counted.given.insert(storage_of(tensor)); });
    calls_.push_back(std::move(counted));
    return calls_.size() - 1;
  }

  void count(const Counted& counted, const at::RecordFunction& call) {
    for (size_t i = 0; i < call.outputs().size(); ++i) {
      if (counted.op && i < counted.op->schema().returns().size() && graph::returns_flags(*counted.op, i)) continue;
      diagnose::for_each_tensor(call.outputs()[i], [&](const at::Tensor& tensor) {
        if (counted.given.count(storage_of(tensor)) == 0) add(counted.location, tensor);
      });
    }
  }

  static const void* storage_of(const at::Tensor& tensor) {
    return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
  }

  void add(const std::string& location, const at::Tensor& tensor) {
    try {
      batch_.add(location, tensor);
    } catch (const InputError&) {  // LibTorch would drop it
      ++uncounted_;
    }
  }

  const lua::LuaScript& script_;
  ValueCollector::Batch& batch_;
  int64_t& uncounted_;
  std::vector<Counted> calls_;
  diagnose::OperatorWatch watch_;
};

void count_inputs(const Signature& signature, const std::vector<at::Tensor>& inputs, ValueCollector::Batch& batch) {
  for (const diagnose::IsolationInput& input : lua::isolation_inputs(signature, inputs))
    if (!input.is_flags) batch.add("input " + input.name, input.tensor);
}

}  // namespace

CountedValues values_of_policy(const CallOptions& options, bool json) {
  lua::PolicyUnderCheck policy = under_check(options, json);
  policy.script.print = prints_to(json ? stderr : stdout);
  const capture::ForceEager force_eager;  // functions that the script compiles are counted operator by operator, too
  random::Sequence numbers;
  const random::DrawFrom draws(&numbers);
  lua::LuaScript script(policy.source, policy.script);
  const Signature& signature = script.signature();
  ScriptCalls calls(script,
                    policy::param_tensors(signature, checked_params(options.params, signature, options.policy)));
  CodeNames codes = signature.codes;
  ValueCollector collector;
  CountedValues found{"policy", script.name(), 0, {}, "", {}};
  int64_t uncounted = 0;
  for (const auto& texts : inputs_of_calls(options.inputs)) {
    const std::vector<at::Tensor> inputs = inputs_of(options, texts, script, codes);
    ValueCollector::Batch batch(collector);
    count_inputs(signature, inputs, batch);
    ++found.calls;
    const CountedCalls counted(script, batch, uncounted);
    try {
      calls.call(inputs);
    } catch (const std::exception& error) {
      found.failure = messages::message_of(error);
      break;
    }
  }
  found.statistics = collector.statistics();
  if (uncounted > 0) found.notes.push_back(fmt::format("not counted: {} results without memory to read", uncounted));
  return found;
}

}  // namespace triage::cli
