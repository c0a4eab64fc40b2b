// The command line: the options of all commands, their help, and what is said to wrong use. CLI11 is included here only.
#include "bindings/cli/options.h"

#include <fmt/format.h>
#include <triage/version.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "bindings/cli/commands.h"
#include "bindings/cli/terminal.h"

namespace triage::cli {
namespace {

constexpr int wrong_use = 2;

using Action = std::function<int()>;

/// A subcommand with its options, which `action` runs once it is chosen.
template <typename Command>
std::pair<CLI::App*, std::shared_ptr<Command>> add_command(CLI::App& app, Action& action, const char* name,
                                                           const char* help) {
  CLI::App* command = app.add_subcommand(name, help);
  auto options = std::make_shared<Command>();
  command->callback([options, &action] { action = [options] { return run(*options); }; });
  return {command, options};
}

/// May be given several times, with one value each.
CLI::Option* add_repeated(CLI::App& command, const char* name, std::vector<std::string>& into, const char* help,
                          const char* type) {
  return command.add_option(name, into, help)
      ->type_name(type)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_json(CLI::App& command, bool& json) { command.add_flag("--json", json, "print one JSON object"); }

/// Policy, inputs and params: for commands that can find inputs for themselves.
void add_example_options(CLI::App& command, CallOptions& options) {
  command.add_option("POLICY", options.policy, "Lua file that returns a policy")->required();
  add_repeated(command, "--input,-i", options.inputs,
               "a tensor for an input: NAME=FILE, NAME=FILE:KEY, or NAME=GENERATOR", "NAME=FILE");
  add_repeated(command, "--param,-p", options.params, "a number for a param of the policy", "NAME=NUMBER");
  command.footer(
      "Files: .pt and .pth as torch.save writes them, .npy, .safetensors; FILE:KEY picks one of several tensors.\n"
      "A generator is randn, rand, randint, zeros, ones or arange, a shape, and options:\n"
      "  randn:32x512,seed=1,dtype=float16,nan=3,inf=2   3 samples with a NaN, 2 with an Inf\n"
      "  randint:32x8,low=0,high=100                     integers, 100 excluded\n");
}

void add_call_options(CLI::App& command, CallOptions& options) {
  add_example_options(command, options);
  command.add_option("--backend", options.backend, "what runs the captured graph")->capture_default_str();
  command.add_option("--device", options.device, "where the inputs are put")->capture_default_str();
  command.add_flag("--fullgraph", options.fullgraph, "a graph break is an error");
}

/// Implies the fused backend.
void add_kernels_option(CLI::App& command, CallOptions& options) {
  add_repeated(command, "--kernels", options.kernels,
               "a file of triage build, whose code is run: give only files you trust; implies --backend fused",
               "FILE.so");
}

void add_run(CLI::App& app, Action& action) {
  auto [command, options] =
      add_command<RunCommand>(app, action, "run", "Run a policy on tensors, and print what was flagged and repaired");
  add_call_options(*command, options->call);
  add_repeated(*command, "--output,-o", options->outputs,
               "write an output: .pt, .npy or .safetensors; FILE:KEY puts several into one file", "NAME=FILE");
  command->add_option("--repeat", options->repeat, "how many warm calls the time is the median of")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  add_json(*command, options->json);
  add_kernels_option(*command, options->call);
  command->callback([options = options, command = command, &action] {
    const bool chosen = command->count("--backend") > 0;
    action = [options, chosen] {
      if (!options->call.kernels.empty()) {
        if (chosen && options->call.backend != "fused")
          throw UsageError(fmt::format("--kernels are for --backend fused, not {}", options->call.backend));
        options->call.backend = "fused";
      }
      return run(*options);
    };
  });
}

/// `arguments` is what follows the script on the command line: it is kept from the parser, which would take the script's
/// options for its own.
void add_exec(CLI::App& app, Action& action, std::vector<std::string> arguments) {
  auto [command, options] = add_command<ExecCommand>(
      app, action, "exec", "Run a trusted Lua script with the full library; `arg` holds its arguments");
  command->add_option("SCRIPT", options->script, "Lua file")->required();
  command->add_option("ARGS", options->arguments, "arguments of the script, whatever they look like");  // for --help
  options->arguments = std::move(arguments);
}

void add_check(CLI::App& app, Action& action) {
  auto [command, options] = add_command<CheckCommand>(app, action, "check",
                                                      "Check policies: syntax, likely mistakes, what the file returns. "
                                                      "The file itself runs once, sandboxed, as it does "
                                                      "when it is loaded, and a policy that declares the types of its "
                                                      "outputs is tried on inputs made of its types; its "
                                                      "tests and the functions of the host do not run");
  command->add_option("FILES", options->files, "Lua files that return policies")->required();
  command
      ->add_option("--define", options->host_functions,
                   "a function that the host defines, so that policies may call it")
      ->type_name("NAME")
      ->expected(1)
      ->allow_extra_args(false);
  add_json(*command, options->json);
}

void add_test(CLI::App& app, Action& action) {
  auto [command, options] = add_command<TestCommand>(
      app, action, "test",
      "Run the tests that policies bring along, as scripts and captured, and tell which rules they reach");
  command->add_option("PATHS", options->paths, "Lua files that return policies, or folders of them")->required();
  command
      ->add_option("--batches", options->batches,
                   "run each test on batches of these sizes as well (its rows repeated or left out)")
      ->delimiter(',')
      ->check(CLI::Range(0, 1'000'000));
  command->add_flag("--full-coverage", options->full_coverage, "a rule that takes no sample in any test is a failure");
  command->add_option("--backend", options->backend, "what runs the captured graph")->capture_default_str();
  command->add_option("--junit", options->junit, "write a JUnit XML report")->type_name("FILE");
  add_json(*command, options->json);
}

void add_explain(CLI::App& app, Action& action) {
  auto [command, options] =
      add_command<ExplainCommand>(app, action, "explain", "Show the graph that a policy became, and what broke it");
  add_call_options(*command, options->call);
  command->add_flag("--decomposed", options->decomposed,
                    "show each graph in plain ATen operations too (where, shifts, masks)");
  command->add_flag(
      "--loops", options->loops,
      "show what the fused backend makes of each graph: its parts, with what each reads, writes and computes");
  command->add_flag("--guards", options->guards, "show what must hold for each graph to be used again");
  command->add_flag("--provenance", options->provenance,
                    "run it operation by operation and show which produced each NaN and Inf, and which passed it on; "
                    "POLICY may also be a TorchScript model (.pt)");
  command
      ->add_option(
          "--benign", options->benign,
          "with --provenance: leave out the Inf that operators, inputs or locations of this name make, on purpose "
          "(a pattern such as aten::masked_fill or encoder.*; may be given several times)")
      ->type_name("PATTERN");
  add_json(*command, options->json);
}

void add_export(CLI::App& app, Action& action) {
  auto [command, options] =
      add_command<ExportCommand>(app, action, "export", "Make a program of a policy that runs without its script");
  command->add_option("POLICY", options->policy, "Lua file that returns a policy")->required();
  add_repeated(*command, "--input,-i", options->inputs, "a tensor for an input: NAME=FILE, or NAME=GENERATOR",
               "NAME=FILE");
  add_repeated(*command, "--param,-p", options->params, "a number for a param, which is then its default",
               "NAME=NUMBER");
  command->add_option("--output,-o", options->output, "write the program to this file, for triage.load_exported");
  command->add_option("--torchscript", options->torchscript,
                      "write a TorchScript module, which PyTorch loads without triage");
  command->add_option("--device", options->device, "where the inputs are put")->capture_default_str();
  command->add_flag("--decomposed", options->decomposed, "in plain ATen operations (where, shifts, masks)");
  command->add_flag("--fixed-sizes", options->fixed_sizes, "for batches of this size only");
  add_json(*command, options->json);
}

void add_build(CLI::App& app, Action& action) {
  auto [command, options] = add_command<BuildCommand>(
      app, action, "build", "Compile the fused kernels of a policy, for hosts without a compiler");
  add_example_options(*command, options->call);
  command->add_option("--output,-o", options->output, "the file to write, for triage run --kernels and RuntimeOptions")
      ->type_name("FILE.so")
      ->required();
  command->add_option("--cpu", options->cpu, "the processor, as the compiler's -march takes it: x86-64-v3, znver3, ...")
      ->capture_default_str();
  command->add_flag("--gradients", options->gradients, "for inputs that require grad, too, and their gradients");
  command->add_flag("--fullgraph", options->call.fullgraph, "a graph break is an error");
  add_json(*command, options->json);
}

void add_bench(CLI::App& app, Action& action) {
  auto [command, options] =
      add_command<BenchCommand>(app, action, "bench", "Time a policy as a script and captured, and say what bounds it");
  add_example_options(*command, options->call);
  command->add_option("--batches", options->batches, "batch sizes (rows of the inputs repeated or left out)")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{100'000'000}));
  command->add_option("--threads", options->threads, "how many threads LibTorch may use")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->add_option("--seconds", options->seconds, "how long to measure each batch size, about")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 3600.0));
  add_kernels_option(*command, options->call);
  add_json(*command, options->json);
}

void add_watch(CLI::App& app, Action& action) {
  auto [command, options] = add_command<WatchCommand>(
      app, action, "watch", "Load the policies of a folder, and show each change being taken up or refused");
  command->add_option("DIR", options->folder, "folder with Lua files")->required();
  command->add_option("--debounce", options->debounce_ms, "milliseconds of quiet after which a change is taken up")
      ->capture_default_str()
      ->check(CLI::Range(0, 60'000));
  command
      ->add_option("--poll", options->poll_ms,
                   "look every so many milliseconds, as network file systems need; 0: the kernel tells")
      ->capture_default_str()
      ->check(CLI::Range(0, 3'600'000));
  command->add_flag("--json", options->json, "print one JSON object a line");
}

void add_repl(CLI::App& app, Action& action) {
  CLI::App* const command =
      add_command<ReplCommand>(app, action, "repl", "Type Lua, line by line, with all that `triage exec` has").first;
  command->footer(
      "Expressions print their values; `_` is the last one. An unfinished chunk goes on in the next line.\n"
      "The history is kept in $XDG_STATE_HOME/triage/history, else ~/.local/state/triage/history.\n"
      "Without a terminal it reads standard input line by line, and ends with status 1 if anything failed.");
}

void add_version(CLI::App& app, Action& action) {
  auto [command, options] =
      add_command<VersionCommand>(app, action, "version", "Show the versions of triage and of what it runs on");
  add_json(*command, options->json);
}

std::string chosen_command(const CLI::App& app) {
  auto chosen = app.get_subcommands();
  return chosen.empty() ? "triage" : "triage " + chosen[0]->get_name();
}

/// What follows `exec SCRIPT`; `argc` is then that of the rest.
std::vector<std::string> take_script_arguments(int& argc, char** argv) {
  if (argc <= 3 || std::string_view(argv[1]) != "exec" || argv[2][0] == '-') return {};
  std::vector<std::string> arguments(argv + 3, argv + argc);
  argc = 3;
  return arguments;
}

/// A guess for the first option in `text` that the chosen command does not have.
std::string guess_option(const CLI::App& app, const std::string& text) {
  auto chosen = app.get_subcommands();
  size_t start = text.find("--");
  if (chosen.empty() || start == std::string::npos) return "";
  std::vector<std::string> names;
  for (const CLI::Option* option : chosen[0]->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  std::string given = text.substr(start, text.find_first_of(" =:", start) - start);
  return std::find(names.begin(), names.end(), given) == names.end() ? did_you_mean(given, names) : "";
}

/// A guess ends with a question mark, and wants no full stop behind it.
std::string with_help(const std::string& message, const std::string& command) {
  return fmt::format("{}{} See {} --help", message, message.back() == '?' ? "" : ".", command);
}

/// CLI11 only says that a word was not expected; most often it is a misspelt command.
std::string parse_message(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-') {
    return with_help(fmt::format("there is no command \"{}\"{}", argv[1], did_you_mean(argv[1], names)), "triage");
  }
  std::string text = error.what();
  for (char& c : text) c = c == '\n' ? ' ' : c;
  return with_help(text.substr(0, text.find_last_not_of(" .") + 1) + guess_option(app, text), chosen_command(app));
}

}  // namespace

Chosen parse_command_line(int argc, char** argv) {
  CLI::App app("Per-sample error records and scripted recovery for LibTorch", "triage");
  app.set_version_flag("--version", std::string("triage ") + version());
  app.require_subcommand(1);
  Action action;
  std::vector<std::string> script_arguments = take_script_arguments(argc, argv);
  add_run(app, action);
  add_exec(app, action, std::move(script_arguments));
  for (auto add :
       {add_check, add_test, add_explain, add_export, add_build, add_bench, add_watch, add_repl, add_version})
    add(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return {"triage", nullptr, app.exit(error)};  // --help and --version
    if (argc == 1)
      say(stderr, "{}", app.help());
    else
      say(stderr, "{}: {}\n", chosen_command(app), parse_message(app, error, argc, argv));
    return {"triage", nullptr, wrong_use};
  }
  return {chosen_command(app), std::move(action), 0};
}

}  // namespace triage::cli
