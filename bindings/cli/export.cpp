#include <fmt/format.h>
#include <triage/export.h>
#include <triage/front_end.h>

#include <algorithm>
#include <memory>

#include "bindings/cli/call.h"
#include "bindings/cli/command.h"
#include "bindings/cli/report.h"
#include "bindings/cli/terminal.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string policy, output, torchscript, device = "cpu";
  std::vector<std::string> inputs, params;
  bool decomposed = false, fixed_sizes = false, json = false;
};

/// A 0-dim tensor that counts as a number in type promotion, as the params of a policy are given to its script.
at::Tensor number_tensor(const c10::Scalar& value) {
  at::Tensor tensor = c10::scalar_to_tensor(value);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

std::vector<at::Tensor> param_tensors(const Signature& signature, const Params& given) {
  std::vector<at::Tensor> tensors;
  for (const Param& param : signature.params) {
    const auto own = std::find_if(given.begin(), given.end(), [&](const auto& p) { return p.first == param.name; });
    tensors.push_back(number_tensor(own == given.end() ? param.value.toScalar() : own->second));
  }
  return tensors;
}

/// The samples of a batch vary: dimension 0 of every input that has as many of them as the first.
ExportOptions batch_varies(const std::vector<at::Tensor>& inputs) {
  ExportOptions options;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].dim() > 0 && inputs[0].dim() > 0 && inputs[i].size(0) == inputs[0].size(0))
      options.dynamic_dims.push_back({i, 0, "s0"});
  return options;
}

void check_files(const Options& options) {
  if (!options.output.empty()) check_destination("-o", options.output, options.policy);
  if (options.torchscript.empty()) return;
  check_destination("--torchscript", options.torchscript, options.policy);
  if (!options.output.empty() && same_file(options.output, options.torchscript))
    throw UsageError(
        fmt::format("-o {} and --torchscript {} are one file; name two", options.output, options.torchscript));
}

int run_export(const Options& options) {
  check_files(options);
  const c10::Device device = parse_device(options.device);
  ScriptOptions script_options;
  script_options.path = options.policy;
  script_options.print = [](const std::string& text) { say(stderr, "{}\n", text); };
  const std::unique_ptr<Script> script = find_front_end(options.policy)(read_source(options.policy), script_options);
  const Signature signature = script->signature();
  const std::vector<at::Tensor> params =
      param_tensors(signature, parse_params(options.params, signature, options.policy));
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
  say("{}", program.text());
  if (!options.output.empty()) say("{} {}\n", paint(Paint::faint, "saved to"), options.output);
  if (!options.torchscript.empty()) say("{} {}\n", paint(Paint::faint, "TorchScript in"), options.torchscript);
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("export", "Make a program of a policy that runs without its script");
  command->add_option("POLICY", options->policy, "Lua file that returns a policy")->required();
  for (auto [name, into, help, type] :
       {std::tuple("--input,-i", &options->inputs, "a tensor for an input: NAME=FILE, or NAME=GENERATOR", "NAME=FILE"),
        std::tuple("--param,-p", &options->params, "a number for a param, which is then its default", "NAME=NUMBER")})
    command->add_option(name, *into, help)
        ->type_name(type)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--output,-o", options->output, "write the program to this file, for triage.load_exported");
  command->add_option("--torchscript", options->torchscript,
                      "write a TorchScript module, which PyTorch loads without triage");
  command->add_option("--device", options->device, "where the inputs are put")->capture_default_str();
  command->add_flag("--decomposed", options->decomposed, "in plain ATen operations (where, shifts, masks)");
  command->add_flag("--fixed-sizes", options->fixed_sizes, "for batches of this size only");
  command->add_flag("--json", options->json, "print one JSON object");
  command->callback([options, &action] { action = [options] { return run_export(*options); }; });
}

}  // namespace triage::cli
