// `triage isolate`: whether a bad sample of a batch changes another, and which operator lets it through.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <triage/runtime.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/model_call.h"
#include "bindings/cli/calls/under_check.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/commands/isolate/isolate_report.h"
#include "bindings/cli/terminal.h"
#include "bindings/lua/testing/isolation.h"
#include "runtime/diagnose/isolation/start_batches.h"
#include "runtime/random/sequence.h"

namespace triage::cli {
namespace {

using diagnose::IsolationInput;
using diagnose::Tensors;

diagnose::IsolationOptions check_options(const IsolateCommand& options, Progress& progress) {
  diagnose::IsolationOptions result;
  result.rows = options.rows;
  result.progress = [&progress](size_t done, size_t all) {
    progress.show(fmt::format("{} of {} bad samples", done, all));
  };
  return result;
}

// A policy

void check_batch(const IsolateCommand& options, const lua::PolicyUnderCheck& policy, const Signature& signature,
                 const ExampleInputs& example, IsolationReport& report) {
  const auto check = [&](const std::string& from, const Tensors& tensors, bool given) {
    lua::PolicySubject subject(policy);
    Progress progress;
    CheckedBatch batch{from, lua::isolation_inputs(signature, tensors, options.shared), {}};
    try {
      batch.found = check_isolation(subject, batch.inputs, check_options(options, progress));
    } catch (const InputError& error) {
      report.left_out.push_back(fmt::format("{}: {}", from, error.what()));
      return;
    } catch (const Error& error) {  // of what was made bad here; the batch without it tells who is hurt
      if (given) throw;
      report.left_out.push_back(fmt::format("{}: {}", from, error.what()));
      return;
    }
    if (!batch.found.ok() && !subject.is_one_graph())
      report.operators_are_from =
          "the policy is not one captured graph, so the operators are those that its script calls";
    report.batches.push_back(std::move(batch));
  };
  for (const diagnose::StartBatch& start :
       diagnose::start_batches(lua::isolation_inputs(signature, example.inputs, options.shared)))
    check(example.from + start.note, start.tensors, start.note.empty() || start.note == diagnose::made_good);
}

IsolationReport check_policy(const IsolateCommand& options) {
  lua::PolicyUnderCheck policy = under_check(options.call, options.json);
  lua::LuaScript script(policy.source, policy.script);
  check_shared(options.shared, script.signature().inputs, options.call.policy);
  IsolationReport report{"policy", script.name(), options.call.backend, {}, {}, {}};
  for (const ExampleInputs& example : examples_to_check(script, options.call, report.left_out)) {
    policy.params = example.params;
    check_batch(options, policy, script.signature(), example, report);
  }
  return report;
}

// A TorchScript model

class ModelSubject final : public diagnose::IsolationSubject {
 public:
  explicit ModelSubject(const ModelCall& call) : call_(call) { restart(); }

  Tensors call(const Tensors& inputs) override {
    const random::Replay same_numbers(true, at::make_generator<at::CPUGeneratorImpl>(0));
    // What the executor specialises or fuses after some calls would change bits between two that are compared.
    const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
    const at::NoGradGuard no_grad;
    Tensors outputs;
    names_.clear();
    for (auto& [name, tensor] : diagnose::named_tensors(model_.forward(arguments(inputs)), "output")) {
      names_.push_back(name);
      outputs.push_back(tensor);
    }
    return outputs;
  }
  void restart() override { model_ = call_.model.deepcopy(); }
  std::vector<std::string> output_names() override { return names_; }
  std::vector<bool> flags_outputs() override { return std::vector<bool>(names_.size()); }
  diagnose::Recording record(const Tensors& inputs) override {
    const random::Replay same_numbers(true, at::make_generator<at::CPUGeneratorImpl>(0));
    return diagnose::record(model_, arguments(inputs), "forward");
  }

  /// The tensors among the arguments. As long as the first, one has samples; parameters are not among them.
  std::vector<IsolationInput> inputs(const std::vector<std::string>& shared) const {
    Signature signature;
    Tensors tensors;
    for (size_t i = 0; i < call_.arguments.size(); ++i) {
      if (!call_.arguments[i].isTensor()) continue;
      signature.inputs.push_back(call_.names[i]);
      tensors.push_back(call_.arguments[i].toTensor());
    }
    return lua::isolation_inputs(signature, tensors, shared);
  }

 private:
  std::vector<c10::IValue> arguments(const Tensors& inputs) const {
    std::vector<c10::IValue> all = call_.arguments;
    size_t next = 0;
    for (c10::IValue& argument : all)
      if (argument.isTensor()) argument = inputs[next++].clone();  // a model may write to its inputs
    return all;
  }

  const ModelCall& call_;
  torch::jit::Module model_;
  std::vector<std::string> names_;
};

IsolationReport check_model(const IsolateCommand& options) {
  const ModelCall call = prepare_model(options.call);
  check_shared(options.shared, call.names, options.call.policy);
  ModelSubject subject(call);
  Progress progress;
  IsolationReport report{"model", options.call.policy, "", {}, {}, {}};
  const std::vector<IsolationInput> inputs = subject.inputs(options.shared);
  for (const diagnose::StartBatch& start : diagnose::start_batches(inputs)) {
    CheckedBatch batch{"the inputs given" + start.note, inputs, {}};
    for (size_t i = 0; i < inputs.size(); ++i) batch.inputs[i].tensor = start.tensors[i];
    try {
      batch.found = check_isolation(subject, batch.inputs, check_options(options, progress));
      report.batches.push_back(std::move(batch));
    } catch (const PolicyError& error) {
      if (start.note.empty() || start.note == diagnose::made_good) throw;
      report.left_out.push_back(fmt::format("{}: {}", batch.from, error.what()));
    }
  }
  return report;
}

}  // namespace

int run(const IsolateCommand& options) {
  const IsolationReport report = is_model_file(options.call.policy) ? check_model(options) : check_policy(options);
  if (report.batches.empty())
    throw UsageError(fmt::format("{}: no batch could be checked: {}; give --input with at least 2 samples",
                                 options.call.policy, report.left_out.empty() ? "none" : report.left_out.front()));
  if (options.json)
    print_json(to_json(report));
  else
    print(report);
  return report.ok() ? 0 : 1;
}

}  // namespace triage::cli
