#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/kernels.h>

#include <memory>

#include "bindings/cli/call.h"
#include "bindings/cli/command.h"
#include "bindings/cli/examples.h"
#include "bindings/cli/terminal.h"
#include "runtime/backends/fused/kernels/kernel_manifest.h"
#include "runtime/capture/compiled.h"
#include "runtime/files/disk.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;
using capture::Compiled;

struct Options {
  CallOptions call;
  std::string output, cpu = "native";
  bool gradients = false, json = false;
};

ScriptOptions script_options(const Options& options) {
  ScriptOptions script;
  script.path = options.call.policy;
  script.print = [](const std::string& text) { say(stderr, "{}\n", text); };
  return script;
}

void call(Compiled& compiled, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& params) {
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
                         const std::vector<at::Tensor>& params) {
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
        const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
        throw Error(
            fmt::format("--gradients: with {}, the gradients of the policy cannot be computed: {}; build it without "
                        "--gradients, or give inputs for which they can",
                        example.from, of_torch ? of_torch->what_without_backtrace() : error.what()));
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

void write(const std::string& path, const std::string& bytes) {
  files::OutputFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

int build(const Options& options) {
  check_destination("-o", options.output, options.call.policy);
  const std::string source = read_source(options.call.policy);
  lua::LuaScript asked(source,
                       script_options(options));  // for its tests; what they do stays apart from what is captured
  const std::vector<Example> examples = examples_for(asked, options.call);
  const auto script = std::make_shared<lua::LuaScript>(source, script_options(options));
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
    bytes = builder.build(script->name(), options.cpu);
  }
  const KernelManifest manifest = fused::unseal(bytes, options.output);
  write(options.output, bytes);
  if (options.json) {
    Json from = Json::array();
    for (const Example& example : examples) from.push_back(example.from);
    print_json({{"policy", script->name()},
                {"file", options.output},
                {"kernels", manifest.kernels},
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

}  // namespace

void add_build(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("build", "Compile the fused kernels of a policy, for hosts without a compiler");
  add_example_options(*command, options->call);
  command->add_option("--output,-o", options->output, "the file to write, for triage run --kernels and RuntimeOptions")
      ->type_name("FILE.so")
      ->required();
  command->add_option("--cpu", options->cpu, "the processor, as the compiler's -march takes it: x86-64-v3, znver3, ...")
      ->capture_default_str();
  command->add_flag("--gradients", options->gradients, "for inputs that require grad, too, and their gradients");
  command->add_flag("--fullgraph", options->call.fullgraph, "a graph break is an error");
  command->add_flag("--json", options->json, "print one JSON object");
  command->callback([options, &action] { action = [options] { return build(*options); }; });
}

}  // namespace triage::cli
