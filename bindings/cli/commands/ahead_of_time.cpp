// `triage build` and `triage export`: what a policy becomes, written to a file.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/export.h>
#include <triage/front_end.h>
#include <triage/kernels.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/given.h"
#include "bindings/cli/calls/inputs.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/terminal.h"
#include "runtime/backends/fused/kernel_cache/kernel_manifest.h"
#include "runtime/capture/compiled.h"
#include "runtime/files/disk.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/policy/files/policy_files.h"
#include "runtime/policy/state/state_of_call.h"
#include "runtime/policy/trials/known_kinds.h"
#include "runtime/policy/versions/version.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;
using capture::Compiled;

ScriptOptions script_options(const BuildCommand& options, policy::PolicyFiles& files) {
  ScriptOptions script;
  script.path = options.call.policy;
  if (options.call.policy != "-") script.read_file = [&files](const std::string& name) { return files.read(name); };
  script.print = prints_to(stderr);
  give(script, options.call.given, c10::kCPU);
  return script;
}

void call(Compiled& compiled, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& given) {
  const std::vector<at::Tensor> params = policy::with_first_state(compiled.script().signature(), inputs, given);
  for (int times = 0; times < 2; ++times) {  // the first captures, the second may go another way
    std::vector<at::Tensor> outputs;
    compiled.run(inputs, params, {}, outputs);
  }
  std::vector<at::Tensor> all(inputs);
  all.insert(all.end(), params.begin(), params.end());
  for (size_t index = 0; index < inputs.size(); ++index) compiled.finish_compiling(all, {index});
}

/// A step of training, so that the kernels of both halves are asked for: what is computed of inputs that require grad, and their gradients.
void call_with_gradients(Compiled& compiled, const std::vector<at::Tensor>& inputs,
                         const std::vector<at::Tensor>& given) {
  const std::vector<at::Tensor> params = policy::with_first_state(compiled.script().signature(), inputs, given);
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs)
    leaves.push_back(input.is_floating_point() ? input.detach().clone().set_requires_grad(true) : input);
  for (int times = 0; times < 2; ++times) {  // the first backward run records the graph
    std::vector<at::Tensor> outputs;
    compiled.run(leaves, params, {}, outputs);
    at::Tensor loss;
    for (const at::Tensor& output : outputs)
      if (output.requires_grad()) {  // gradients of a sum alone would be one number in memory, expanded
        const at::Tensor own = (output * at::ones_like(output, at::MemoryFormat::Contiguous)).sum();
        loss = loss.defined() ? loss + own : own;
      }
    if (loss.defined()) loss.backward();
  }
}

/// Captures the policy for each example, so that its kernels are asked for; and for batches of one sample and of none, of
/// which graphs are captured of their own. A policy need not take those.
void capture_all(Compiled& compiled, const std::vector<Example>& examples, bool gradients) {
  for (const Example& example : examples) {
    call(compiled, example.inputs, example.params);
    if (gradients) try {
        call_with_gradients(compiled, example.inputs, example.params);
      } catch (const LimitError&) {
        throw;
      } catch (const std::exception& error) {
        throw Error(
            fmt::format("--gradients: with {}, triage cannot compute the gradients of the policy: {}; build without "
                        "--gradients, or pass inputs that allow gradients",
                        example.from, messages::message_without_backtrace(error)));
      }
    for (const int64_t rows : {1, 0}) {
      const std::vector<at::Tensor> inputs = with_rows(example.inputs, rows);
      if (inputs.empty()) continue;
      try {
        call(compiled, inputs, example.params);
        if (gradients) call_with_gradients(compiled, inputs, example.params);
      } catch (const LimitError&) {
        throw;
      } catch (const std::exception&) {
        continue;
      }
    }
  }
}

/// Of the graphs that were captured: a process that loads the file captures the policy for them at once.
std::vector<KnownCall> calls_of(const Compiled& compiled, const std::string& hash) {
  std::vector<KnownCall> calls;
  for (const capture::Entry* entry : compiled.entries())
    if (calls.size() < fused::most_known_calls) calls.push_back(policy::known_call(hash, entry->shape));
  return calls;
}

}  // namespace

namespace {

Json inputs_of_calls(const std::vector<KnownCall>& calls) {
  Json json = Json::array();
  for (const KnownCall& call : calls) json.push_back(call.inputs);
  return json;
}

}  // namespace

int run(const BuildCommand& options) {
  check_destination("-o", options.output, options.call.policy);
  const std::string source = read_source(options.call.policy);
  policy::PolicyFiles files(std::filesystem::absolute(options.call.policy).lexically_normal(), policy::Verify());
  lua::LuaScript asked(
      source, script_options(options, files));  // for its tests; what they do stays apart from what is captured
  const std::vector<Example> examples = examples_for(asked, options.call);
  const auto script = std::make_shared<lua::LuaScript>(source, script_options(options, files));
  const std::string hash = policy::Contents{source, files.all()}.hash();
  Compiled::Options compile;
  compile.backend = "fused";
  compile.fullgraph = options.call.fullgraph || script->fullgraph();
  compile.recompile_limit = 1000;  // tests may call with every kind of input
  const KernelBuilder builder;
  std::string bytes;
  {
    Progress progress;
    progress.show("capturing ...");
    Compiled compiled(script, compile);
    capture_all(compiled, examples, options.gradients);
    progress.show(fmt::format("compiling {} kernels ...", builder.size()));
    bytes = fused::with_calls(builder.build(script->name(), options.cpu), options.output, calls_of(compiled, hash));
  }
  const KernelManifest manifest = fused::parse_kernel_file(bytes, options.output);
  files::write_file(options.output, bytes);
  if (options.json) {
    Json from = Json::array();
    for (const Example& example : examples) from.push_back(example.from);
    print_json({{"policy", script->name()},
                {"file", options.output},
                {"kernels", manifest.kernels},
                {"calls", inputs_of_calls(manifest.calls)},
                {"from", from},
                {"triage", manifest.version},
                {"architecture", manifest.architecture},
                {"features", manifest.features},
                {"compiler", manifest.compiler}});
    return 0;
  }
  const size_t count = manifest.kernels.size();
  say("{}\n  kernels    {}, from {}\n  for        {} with {}\n  by         triage {}, {}\n  written to {}\n",
      paint(Paint::heading, script->name()), count,
      examples.size() == 1 ? examples[0].from : fmt::format("{} tests", examples.size()), manifest.architecture,
      manifest.features.empty() ? "nothing more" : fmt::format("{}", fmt::join(manifest.features, " ")),
      manifest.version, manifest.compiler, options.output);
  return 0;
}

namespace {

/// The samples of a batch vary: dimension 0 of every input that has as many of them as the first.
ExportOptions batch_varies(const std::vector<at::Tensor>& inputs) {
  ExportOptions options;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].dim() > 0 && inputs[0].dim() > 0 && inputs[i].size(0) == inputs[0].size(0))
      options.dynamic_dims.push_back({i, 0, "s0"});
  return options;
}

void check_files(const ExportCommand& options) {
  if (!options.output.empty()) check_destination("-o", options.output, options.policy);
  if (options.torchscript.empty()) return;
  check_destination("--torchscript", options.torchscript, options.policy);
  if (!options.output.empty() && same_file(options.output, options.torchscript))
    throw UsageError(fmt::format("-o {} and --torchscript {} name the same file; name two files", options.output,
                                 options.torchscript));
}

}  // namespace

int run(const ExportCommand& options) {
  check_files(options);
  const c10::Device device = parse_device(options.device);
  ScriptOptions script_options;
  script_options.path = script_name(options.policy);
  script_options.read_file = files_of(options.policy);
  script_options.print = prints_to(stderr);
  give(script_options, options.given, device);
  const std::unique_ptr<Script> script =
      find_front_end(script_name(options.policy))(read_source(options.policy), script_options);
  const Signature signature = script->signature();
  const std::vector<at::Tensor> params =
      policy::param_tensors(signature, parse_params(options.params, signature, options.policy));
  std::vector<at::Tensor> inputs;
  for (const auto& [name, source] : match_inputs(options.inputs, signature.inputs, options.policy))
    inputs.push_back(read_input(source, device));
  ExportOptions sizes = options.fixed_sizes ? ExportOptions{} : batch_varies(inputs);
  sizes.by_contract = !script_options.trusted;
  const ExportedProgram captured = export_script(*script, inputs, params, sizes);
  const ExportedProgram program = options.decomposed ? captured.run_decompositions() : captured;
  if (!options.output.empty()) program.save(options.output);
  if (!options.torchscript.empty()) program.save_torchscript(options.torchscript);
  if (options.json) {
    Json json = {{"policy", script->name()}, {"ops", program.graph().nodes().size()}, {"program", program.text()}};
    if (!options.output.empty()) json["file"] = options.output;
    if (!options.torchscript.empty()) json["torchscript"] = options.torchscript;
    print_json(json);
    return 0;
  }
  say("{}", Block{program.text()});
  if (!options.output.empty()) say("{} {}\n", paint(Paint::faint, "saved to"), options.output);
  if (!options.torchscript.empty()) say("{} {}\n", paint(Paint::faint, "TorchScript in"), options.torchscript);
  return 0;
}

}  // namespace triage::cli
