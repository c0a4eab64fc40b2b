// `triage export`: a policy as a program, written to a file.
#include <fmt/format.h>
#include <triage/export.h>
#include <triage/front_end.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/given.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/terminal.h"
#include "runtime/policy/versions/version.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

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
      policy::param_tensors(signature, checked_params(options.params, signature, options.policy));
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
  say("{}", PreformattedText{program.text()});
  if (!options.output.empty()) say("{} {}\n", paint(Paint::faint, "saved to"), options.output);
  if (!options.torchscript.empty()) say("{} {}\n", paint(Paint::faint, "TorchScript in"), options.torchscript);
  return 0;
}

}  // namespace triage::cli
