// The command line: the options of all commands, their help, and what is said to wrong use. CLI11 is included here only.
#include "bindings/cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/backend.h>
#include <triage/version.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "bindings/cli/commands.h"
#include "bindings/cli/generate/command_tree.h"
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
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_json(CLI::App& command, bool& json) { command.add_flag("--json", json, "print one JSON object"); }

/// Policy, inputs and params: for commands that can find inputs for themselves.
void add_example_options(CLI::App& command, CallOptions& options) {
  command.add_option("POLICY", options.policy, "Lua file that returns a policy; - is standard input")->required();
  add_repeated(command, "--input,-i", options.inputs,
               "a tensor for an input: NAME=FILE, NAME=FILE:KEY, or NAME=GENERATOR", "NAME=FILE");
  add_repeated(command, "--param,-p", options.params,
               "a value for a param of the policy: a number, numbers with commas, or @FILE", "NAME=VALUE");
  command.footer(
      "Files: .pt and .pth as torch.save writes them, .npy, .safetensors; FILE:KEY picks one of several tensors.\n"
      "A generator is randn, rand, randint, zeros, ones or arange, a shape, and options:\n"
      "  randn:32x512,seed=1,dtype=float16,nan=3,inf=2   3 samples with a NaN, 2 with an Inf\n"
      "  randint:32x8,low=0,high=100                     integers, 100 excluded\n");
}

void add_define_option(CLI::App& command, std::vector<std::string>& given) {
  add_repeated(command, "--define", given,
               "a tensor or a TorchScript module that the host gives the policy under this name", "NAME=FILE");
}

/// `without`: what the command does where the option is not given.
void add_compiler_option(CLI::App& command, std::string& compiler, const char* without) {
  command
      .add_option(
          "--compiler", compiler,
          fmt::format("whether backend fused may use the C++ compiler; loops run at once without it, and faster "
                      "with it. Default: {}",
                      without))
      ->type_name("off|background|wait");
}
constexpr const char* background_by_default = "background where a compiler is installed, else off";

CLI::Option* add_backend_option(CLI::App& command, std::string& backend) {
  return command.add_option("--backend", backend, "the backend that runs the captured graph")
      ->type_name(fmt::format("{}", fmt::join(list_backends(), "|")))
      ->capture_default_str();
}

void add_call_options(CLI::App& command, CallOptions& options, const char* compiler_without) {
  add_example_options(command, options);
  add_backend_option(command, options.backend);
  add_compiler_option(command, options.compiler, compiler_without);
  command.add_option("--device", options.device, "the device of the inputs")->capture_default_str();
  command.add_flag("--fullgraph", options.fullgraph, "make a graph break an error");
}

void add_kernels_option(CLI::App& command, CallOptions& options) {
  add_repeated(
      command, "--kernels", options.kernels,
      "kernels from triage build, for backend fused; triage runs their code, so give only files that you trust",
      "FILE.so");
}

void add_run(CLI::App& app, Action& action) {
  auto [command, options] =
      add_command<RunCommand>(app, action, "run", "Run a policy on tensors, and print what it flagged and repaired");
  add_call_options(*command, options->call, background_by_default);
  add_define_option(*command, options->call.given);
  add_repeated(*command, "--output,-o", options->outputs,
               "write an output to a .pt, .npy or .safetensors file; FILE:KEY writes several outputs to one file",
               "NAME=FILE");
  command->add_option("--repeat", options->repeat, "the number of warm calls; the reported time is their median")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command
      ->add_option("--compare", options->compare,
                   "compare these backends with eager, node by node, and print where they differ; the exit status is 1 "
                   "if one is wrong. Kernels are compared with --compiler wait, else tapes")
      ->type_name("BACKEND,...")
      ->excludes("--output")
      ->excludes("--repeat")
      ->excludes("--backend");
  CLI::Option* const capsule =
      command
          ->add_option("--capsule", options->capsule, "write the first call to a capsule, which triage replay repeats")
          ->type_name("FILE.pt")
          ->excludes("--compare");
  command->add_flag("--bad-rows", options->bad_rows, "only flagged samples go into the capsule")->needs(capsule);
  command
      ->add_option("--decisions", options->decisions,
                   "append a line for each call to a decision log, if it flags samples or fails")
      ->type_name("FILE.jsonl")
      ->excludes("--compare");
  command
      ->add_option("--state", options->state,
                   "begin with the state of the policy in this .pt file, if it is there, and write the state after the "
                   "last call to it")
      ->type_name("FILE.pt")
      ->excludes("--compare");
  add_json(*command, options->json);
  add_kernels_option(*command, options->call);
}

/// `arguments` is what follows the script on the command line: it is kept from the parser, which would take the script's
/// options for its own.
void add_exec(CLI::App& app, Action& action, std::vector<std::string> arguments) {
  auto [command, options] = add_command<ExecCommand>(
      app, action, "exec", "Run a trusted Lua script with the full library; `arg` holds its arguments");
  add_compiler_option(*command, options->compiler, background_by_default);
  command->add_option("-e", options->code, "run this text in the place of a script")->type_name("CODE");
  command->add_option("SCRIPT", options->script, "Lua file; - is standard input");
  command->add_option("ARGS", options->arguments, "arguments of the script, passed on unchanged");  // for --help
  options->arguments = std::move(arguments);
}

void add_check(CLI::App& app, Action& action) {
  auto [command, options] = add_command<CheckCommand>(
      app, action, "check",
      "Check policies: syntax, likely mistakes, and what the file returns. triage runs the file once in the sandbox, "
      "as when it loads a policy. If a policy declares the types of its outputs, triage also runs it on synthetic "
      "inputs of the declared types. It does not run the policy's tests or functions of the host");
  command
      ->add_option("PATHS", options->paths,
                   "Lua files that return policies, or folders with such files; - is standard input")
      ->required();
  add_repeated(
      *command, "--define", options->given,
      "the name of a function that the host defines, or NAME=FILE: a tensor or TorchScript module that it gives",
      "NAME");
  add_json(*command, options->json);
}

void add_test(CLI::App& app, Action& action) {
  auto [command, options] = add_command<TestCommand>(
      app, action, "test", "Run the tests of policies, as scripts and captured, and report which rules they reach");
  command->add_option("PATHS", options->paths, "Lua files that return policies, or folders with such files")
      ->required();
  command
      ->add_option("--batches", options->batches,
                   "also run each test at these batch sizes (rows are repeated or dropped)")
      ->delimiter(',')
      ->check(CLI::Range(0, 1'000'000));
  add_define_option(*command, options->given);
  command->add_flag("--full-coverage", options->full_coverage, "fail if a rule takes no sample in any test");
  add_backend_option(*command, options->backend);
  command->add_option("--junit", options->junit, "write a JUnit XML report")->type_name("FILE");
  add_json(*command, options->json);
}

void add_explain(CLI::App& app, Action& action) {
  auto [command, options] =
      add_command<ExplainCommand>(app, action, "explain", "Show the captured graphs of a policy, and its graph breaks");
  add_call_options(*command, options->call, "off: nothing runs often enough to be worth a compilation");
  add_define_option(*command, options->call.given);
  command->add_flag("--decomposed", options->decomposed,
                    "also show each graph in plain ATen operations (where, shifts, masks)");
  command->add_flag("--loops", options->loops,
                    "show the fusion groups of each graph: what each reads, writes and computes");
  command->add_flag("--guards", options->guards,
                    "show the guards of each graph: the conditions under which a call reuses it");
  command->add_flag("--provenance", options->provenance,
                    "run POLICY one operation at a time, and show which operation produced each NaN and Inf, and which "
                    "propagated it; POLICY may also be a TorchScript model (.pt)");
  command
      ->add_option("--benign", options->benign,
                   "with --provenance: ignore intended Inf values from operators, inputs or locations with this name "
                   "(a pattern such as aten::masked_fill or encoder.*; may be repeated)")
      ->type_name("PATTERN");
  add_json(*command, options->json);
}

void add_isolate(CLI::App& app, Action& action) {
  auto [command, options] = add_command<IsolateCommand>(
      app, action, "isolate",
      "Check that a bad sample changes no other: make one sample after another NaN, Inf and "
      "the largest number, compare all others bit for bit, and name the first operator that "
      "lets it through. POLICY may also be a TorchScript model (.pt). Without --input: the "
      "batches of the policy's tests, and one made from its declared types");
  add_call_options(*command, options->call, "off; background is refused, because it changes loops between two calls");
  command
      ->add_option(
          "--rows", options->rows,
          "the most samples of a batch that are made bad; of a larger batch, so many between the first and the "
          "last")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  add_repeated(*command, "--shared", options->shared,
               "an input that all samples share (a weight), although it is as long as the batch", "NAME");
  add_json(*command, options->json);
}

void add_export(CLI::App& app, Action& action) {
  auto [command, options] =
      add_command<ExportCommand>(app, action, "export", "Export a policy as a program that runs without its script");
  command->add_option("POLICY", options->policy, "Lua file that returns a policy")->required();
  add_repeated(*command, "--input,-i", options->inputs, "a tensor for an input: NAME=FILE, or NAME=GENERATOR",
               "NAME=FILE");
  add_repeated(*command, "--param,-p", options->params, "a value for a param; the program uses it as the default",
               "NAME=VALUE");
  command->add_option("--output,-o", options->output, "write the program to this file, for triage.load_exported");
  command->add_option("--torchscript", options->torchscript,
                      "write a TorchScript module, which PyTorch loads without triage");
  command->add_option("--device", options->device, "the device of the inputs")->capture_default_str();
  command->add_flag("--decomposed", options->decomposed, "use plain ATen operations only (where, shifts, masks)");
  command->add_flag("--fixed-sizes", options->fixed_sizes, "accept only batches of this size");
  add_json(*command, options->json);
}

void add_build(CLI::App& app, Action& action) {
  auto [command, options] = add_command<BuildCommand>(
      app, action, "build", "Compile the fused kernels of a policy, for hosts without a compiler");
  add_example_options(*command, options->call);
  command
      ->add_option("--output,-o", options->output, "the file to write; triage run --kernels and RuntimeOptions load it")
      ->type_name("FILE.so")
      ->required();
  command->add_option("--cpu", options->cpu, "the processor, as the compiler's -march takes it: x86-64-v3, znver3, ...")
      ->capture_default_str();
  command->add_flag("--gradients", options->gradients, "also compile the backward pass, for inputs that require grad");
  command->add_flag("--fullgraph", options->call.fullgraph, "make a graph break an error");
  add_json(*command, options->json);
}

void add_cache(CLI::App& app, Action& action) {
  auto [command, options] = add_command<CacheCommand>(
      app, action, "cache", "Show the cache of compiled kernels, carry it to another machine, or clear it");
  command
      ->add_option("ACTION", options->action,
                   "save FILE: kernels and kinds of calls to one file, a bundle; load FILE: from a bundle into the "
                   "cache, so that the next processes start warm; show FILE: what is in a bundle; clear. Without: what "
                   "is in the cache")
      ->type_name("save|load|show|clear");
  command->add_option("FILE", options->file, "a bundle");
  command->footer(
      "A bundle holds machine code: loading one trusts whoever made it as much as a shared library does. It is "
      "checked\n"
      "against accidents (checksum, versions of triage and LibTorch, features of the processor), not against "
      "attackers.\n"
      "A policy whose calls came with a bundle is captured while it is loaded, in processes whose compiler mode is\n"
      "background or wait. The cache is in TRIAGE_KERNEL_CACHE, else $XDG_CACHE_HOME/triage/kernels, else\n"
      "~/.cache/triage/kernels.");
  add_json(*command, options->json);
}

void add_bundle(CLI::App& app, Action& action) {
  auto [command, options] = add_command<BundleCommand>(
      app, action, "bundle", "Check, pack or compare bundles: policies that go live together");
  command
      ->add_option("ACTION", options->action,
                   "check DIR: compare its files with bundle.json, load its policies, run their tests; pack DIR: write "
                   "bundle.json for its policies, modules (lib/) and tables; diff OLD NEW: what changes")
      ->type_name("check|pack|diff")
      ->required();
  command->add_option("DIR", options->folder, "the folder of a bundle")->required();
  command->add_option("NEW", options->other, "of diff: the folder of the other bundle");
  const auto add = [&](const char* name, std::string& into, const char* help, const char* type) {
    command->add_option(name, into, help)->type_name(type);
  };
  add("--output,-o", options->output, "of pack: the file to write. Default: DIR/bundle.json", "FILE");
  add("--name", options->name, "of pack: the bundle. Default: that of the old bundle.json, or the folder", "NAME");
  add("--version", options->version, "of pack: its version. Default: a hash of its files", "VERSION");
  add("--triage", options->triage, "of pack: for triage \">=0.1, <2\". Default: as before, or this and later", "RANGE");
  add_json(*command, options->json);
}

void add_bench(CLI::App& app, Action& action) {
  auto [command, options] = add_command<BenchCommand>(
      app, action, "bench", "Time a policy as a script and captured, and name its bottleneck");
  add_example_options(*command, options->call);
  command->add_option("--batches", options->batches, "batch sizes (rows of the inputs are repeated or dropped)")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{100'000'000}));
  command->add_option("--threads", options->threads, "the number of threads that LibTorch may use")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->add_option("--seconds", options->seconds, "the approximate time to measure each batch size")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 3600.0));
  CLI::Option* const profile = command->add_option(
      "--profile", options->profile, "write a trace of warm calls for Perfetto (https://ui.perfetto.dev) to this file");
  profile->type_name("FILE.json");
  add_backend_option(*command, options->call.backend)->needs(profile)->description("the backend of the traced calls");
  add_compiler_option(*command, options->call.compiler, background_by_default);
  add_kernels_option(*command, options->call);
  add_json(*command, options->json);
}

/// For `triage watch POLICY --canary FILE`.
void add_candidate_options(CLI::App& command, WatchCommand& options) {
  CLI::Option* const canary = command.add_option("--canary", options.canary,
                                                 "call POLICY, and have this new version answer a share of the calls");
  CLI::Option* const shadow = command.add_option(
      "--shadow", options.shadow, "call POLICY, and compare this new version with it on a share of the calls");
  canary->type_name("FILE.lua")->excludes(shadow);
  shadow->type_name("FILE.lua");
  add_repeated(command, "--input,-i", options.call.inputs,
               "with a candidate: a tensor for an input; a generator without a seed gives 16 batches", "NAME=FILE");
  add_repeated(command, "--param,-p", options.call.params, "with a candidate: a value for a param", "NAME=VALUE");
  add_compiler_option(command, options.call.compiler, background_by_default);
  command.add_option("--share", options.share, "the candidate's share of the calls; default: 0.05, for --shadow 1")
      ->check(CLI::Range(1e-6, 1.0));
  command
      .add_option("--calls", options.calls,
                  "end after this many calls; default: when a canary is promoted or reverted, for --shadow 1000")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}));
  command
      .add_option("--promote-after", options.promote_after,
                  "calls that a canary must answer to go live; 0: it never does")
      ->capture_default_str()
      ->needs(canary)
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}));
  command.add_option("--failures", options.failures, "revert a canary that failed so many calls; 0: never")
      ->capture_default_str()
      ->needs(canary)
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}));
  command
      .add_option("--flagged-ratio", options.flagged_ratio,
                  "revert one that flags so many times as many samples; 0: never")
      ->capture_default_str()
      ->needs(canary);
  command.add_option("--p99-ratio", options.p99_ratio, "revert one whose calls take so many times as long; 0: never")
      ->capture_default_str()
      ->needs(canary);
  command.add_option("--tolerance", options.tolerance, "absolute differences of outputs that a shadow may have")
      ->capture_default_str()
      ->needs(shadow)
      ->check(CLI::Range(0.0, 1e300));
}

void add_watch(CLI::App& app, Action& action) {
  auto [command, options] = add_command<WatchCommand>(
      app, action, "watch",
      "Load the policies of a folder, or its bundle, reload what changes, and report each result; or try a new version "
      "of one policy beside it");
  command->add_option("DIR", options->folder, "folder with Lua files; with --canary or --shadow: the policy")
      ->required();
  command
      ->add_option("--debounce", options->debounce_ms,
                   "milliseconds without a further change before triage reloads a file")
      ->capture_default_str()
      ->check(CLI::Range(0, 60'000));
  command
      ->add_option("--poll", options->poll_ms,
                   "the polling interval in milliseconds, for network file systems; 0 uses inotify")
      ->capture_default_str()
      ->check(CLI::Range(0, 3'600'000));
  command->add_flag("--json", options->json, "print one JSON object per line");
  add_candidate_options(*command, *options);
}

void add_repl(CLI::App& app, Action& action) {
  auto [command, options] =
      add_command<ReplCommand>(app, action, "repl", "Run Lua line by line, with everything that `triage exec` has");
  add_compiler_option(*command, options->compiler, background_by_default);
  command->footer(
      "Expressions print their values; `_` is the last one. An unfinished chunk continues on the next line.\n"
      "The history is in $XDG_STATE_HOME/triage/history, by default ~/.local/state/triage/history.\n"
      "Without a terminal, triage reads standard input line by line, and exits with status 1 if a line failed.");
}

void add_minify(CLI::App& app, Action& action) {
  auto [command, options] = add_command<MinifyCommand>(
      app, action, "minify",
      "Find the smallest part of a graph that makes its backend fail, and write it as a program");
  command
      ->add_option(
          "PROGRAM", options->program,
          "a Lua program with triage.run_graph, such as minifier_launcher.lua, or a folder with one; triage runs it "
          "with the full library")
      ->required();
  command->add_option("--output,-o", options->output, "the program to write (default: repro.lua beside PROGRAM)")
      ->type_name("FILE.lua");
  command->add_flag("--numbers", options->numbers,
                    "also take wrong numbers for a failure: results further from those of float64 than eager's");
  command->add_option("--time-limit", options->time_limit, "seconds for each candidate; one that takes longer hangs")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  command->add_option("--memory", options->memory_mib, "MiB of memory for each candidate")
      ->capture_default_str()
      ->check(CLI::Range(64, 1 << 20));
  command->add_option("--seconds", options->seconds, "seconds in all; then the smallest graph so far is the result")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 86400.0));
  add_json(*command, options->json);
}

void add_replay(CLI::App& app, Action& action) {
  auto [command, options] = add_command<ReplayCommand>(
      app, action, "replay", "Repeat a call from its capsule, and compare what comes of it, bit by bit");
  command->add_option("CAPSULE", options->capsule, "a .pt file that TRIAGE_REPLAY_RECORD or `run --capsule` made")
      ->required();
  command->add_option("--backend", options->backend, "another backend than that of the call")->type_name("NAME");
  add_compiler_option(*command, options->compiler, "off");
  command->add_flag(
      "--trusted", options->trusted,
      "give the script the full library and every operator, as triage exec does: for capsules of your own");
  command->add_flag("--minify", options->minify,
                    "hand each graph that fails or is wrong to the minifier, in the folder CAPSULE.repro");
  command->add_option("--extract", options->extract, "also write the sources and capsule.json to this folder")
      ->type_name("DIR");
  command->footer("Exit status 1: the replay gives other bits, or another error.");
  add_json(*command, options->json);
}

void add_decisions(CLI::App& app, Action& action) {
  auto [command, options] = add_command<DecisionsCommand>(
      app, action, "decisions", "Summarise a decision log, or list the decisions that are asked for");
  command->add_option("FILES", options->files, "files of the log, rotated ones too; - is standard input")->required();
  const auto add = [command = command](const char* name, std::string& into, const char* help, const char* type) {
    command->add_option(name, into, help)->type_name(type);
  };
  add("--policy", options->policy, "only decisions of this policy", "NAME");
  add("--code", options->code, "only samples with an error of this code", "CODE");
  add("--location", options->location, "only samples with an error at this location; a pattern such as encoder.*",
      "PATTERN");
  add("--sample", options->sample, "only the sample that the host gave this name", "ID");
  add("--decision", options->decision, "only the decision that the host gave this name", "ID");
  add("--since", options->since, "only decisions at this time in UTC or later", "TIME");
  add("--until", options->until, "only decisions at this time or before; 2026-05-04 includes that day", "TIME");
  add("--answered", options->answered, "only decisions that were answered so",
      "live|canary|previous|last_good|passed_through|failed");
  command->add_flag("--list", options->list, "print each decision on a line; with --json as it is in the log");
  command->footer(
      "Hosts write such logs with triage::DecisionLog, and `triage run --decisions FILE` writes one. Files are read "
      "in\n"
      "the order of their times. Damaged lines are counted and named by their numbers.");
  add_json(*command, options->json);
}

void add_report(CLI::App& app, Action& action) {
  auto [command, options] = add_command<ReportCommand>(
      app, action, "report", "Show a trace as one page: graphs beside their source, times, guards, code, flags");
  command->add_option("TRACE", options->traces, "files that TRIAGE_TRACE=DIR made, or DIR itself")
      ->required()
      ->expected(1, -1);
  command->add_option("--output,-o", options->output, "the page to write")->type_name("FILE.html")->required();
  command->footer(
      "TRIAGE_TRACE=DIR, set for any program that uses triage, writes one file for each process. The page needs no\n"
      "network and no other file. Lines of a trace that are damaged are counted and left out.");
  add_json(*command, options->json);
}

void add_doctor(CLI::App& app, Action& action) {
  auto [command, options] = add_command<DoctorCommand>(
      app, action, "doctor",
      "Check what triage runs on: libraries, processor, threads, compiler, kernel cache, file watches, GPU");
  command->footer(
      "Each finding that is not fine says what to do. Exit status: 0 nothing to do, 1 something works worse than it\n"
      "could (a warning), 3 something does not work (an error). Put the output into a bug report, or attach the\n"
      "file of --bundle: it says in README.txt what is in it, so look before you send it.");
  command
      ->add_option("--bundle", options->bundle,
                   "also write one file for a bug report: this output, the last capsule (TRIAGE_REPLAY_RECORD, else "
                   "triage_capsules), the end of the log (TRIAGE_LOG_FILE) and of the debug folder's logs")
      ->type_name("FILE.zip");
  add_json(*command, options->json);
}

void add_version(CLI::App& app, Action& action) {
  auto [command, options] =
      add_command<VersionCommand>(app, action, "version", "Show the versions of triage and its dependencies");
  add_json(*command, options->json);
}

void add_generate(CLI::App& app, Action& action) {
  auto [command, options] = add_command<GenerateCommand>(
      app, action, "generate",
      "Write completion for bash and zsh, man pages, and the names of the library for editors and luacheck");
  command->add_option("DIR", options->folder, "the folder to write to; the files lie in it as in /usr/share")
      ->required();
}

void add_help(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("help", "Show the help of a command");
  auto name = std::make_shared<std::string>();
  command->add_option("COMMAND", *name, "a command of triage; all are listed without it");
  command->callback([&app, &action, name] {
    std::vector<std::string> names;
    for (const CLI::App* other : app.get_subcommands({})) names.push_back(other->get_name());
    if (!name->empty() && std::find(names.begin(), names.end(), *name) == names.end())
      throw UsageError(fmt::format("there is no command \"{}\"{}", *name, did_you_mean(*name, names)));
    const std::string text = name->empty() ? app.get_formatter()->make_help(&app, "triage", CLI::AppFormatMode::Normal)
                                           : app.get_subcommand(*name)->help("triage");
    action = [text] {
      say("{}", text);
      return 0;
    };
  });
}

std::string chosen_command(const CLI::App& app) {
  auto chosen = app.get_subcommands();
  return chosen.empty() ? "triage" : "triage " + chosen[0]->get_name();
}

/// What follows the script, or the code, of `exec`; `argc` is then that of the rest.
std::vector<std::string> take_script_arguments(int& argc, char** argv) {
  if (argc <= 2 || std::string_view(argv[1]) != "exec") return {};
  int end = 2;  // behind the script
  for (bool found = false; !found; ++end) {
    if (end >= argc) return {};
    const std::string_view word = argv[end];
    if (word == "--compiler") {
      ++end;
    } else if (word == "-e") {
      ++end, found = true;
    } else if (word.rfind("--compiler=", 0) != 0) {
      if (word != "-" && word[0] == '-') return {};  // an option that the parser answers
      found = true;
    }
  }
  if (end >= argc) return {};
  std::vector<std::string> arguments(argv + end, argv + argc);
  argc = end;
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

void set_up(CLI::App& app, Action& action, std::vector<std::string> script_arguments) {
  app.set_version_flag("-V,--version", std::string("triage ") + version());
  app.require_subcommand(1);
  add_run(app, action);
  add_exec(app, action, std::move(script_arguments));
  for (auto add : {add_check, add_test, add_isolate, add_explain, add_export, add_build, add_bundle, add_cache,
                   add_bench, add_watch, add_minify, add_replay, add_decisions, add_report, add_repl, add_doctor,
                   add_version, add_generate, add_help})
    add(app, action);
}

constexpr const char* summary = "Per-sample error records and scripted recovery for LibTorch";

OptionDescription describe(const CLI::Option& option) {
  OptionDescription described;
  for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  const bool has_words = option.get_type_name().find('|') != std::string::npos;
  if (described.names.empty())
    described.value = has_words ? option.get_type_name() : option.get_name();
  else if (option.get_items_expected_max() > 0)
    described.value = option.get_type_name().substr(0, option.get_type_name().find(':'));
  described.help = option.get_description();
  described.default_value = option.get_default_str();
  described.required = option.get_required();
  described.repeated =
      option.get_items_expected_max() > 1 || option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  return described;
}

CommandDescription describe(const CLI::App& app) {
  CommandDescription command{app.get_name(), app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    OptionDescription described = describe(*option);
    (described.names.empty() ? command.arguments : command.options).push_back(std::move(described));
  }
  return command;
}

/// Errors go to standard output as JSON where the command line asks for JSON, right or wrong as it may be.
bool asks_for_json(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc, [](const char* word) { return std::string_view(word) == "--json"; });
}

}  // namespace

std::vector<CommandDescription> describe_commands() {
  CLI::App app(summary, "triage");
  Action action;
  set_up(app, action, {});
  std::vector<CommandDescription> commands = {describe(app)};
  commands[0].name.clear();
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(describe(*command));
  return commands;
}

Chosen parse_command_line(int argc, char** argv) {
  CLI::App app(summary, "triage");
  Action action;
  std::vector<std::string> script_arguments = take_script_arguments(argc, argv);
  set_up(app, action, std::move(script_arguments));
  const bool json = asks_for_json(argc, argv);
  const auto wrong = [&](const std::string& message) {
    return Chosen{chosen_command(app), [message]() -> int { throw UsageError(message); }, wrong_use, json};
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return {"triage", nullptr, app.exit(error)};  // --help and --version
    if (argc > 1) return wrong(parse_message(app, error, argc, argv));
    say(stderr, "{}", app.help());
    return {"triage", nullptr, wrong_use};
  } catch (const UsageError& error) {
    return wrong(error.what());
  }
  return {chosen_command(app), std::move(action), 0, json};
}

}  // namespace triage::cli
