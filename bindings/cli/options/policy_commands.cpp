#include <triage/version.h>

#include <algorithm>
#include <string_view>

#include "bindings/cli/options/shared.h"
#include "bindings/cli/terminal.h"

namespace triage::cli {
namespace {

void add_run(CLI::App& app, Action& action) {
  auto [command, options] =
      add_command<RunCommand>(app, action, "run", "Run a policy on tensors, and print what it flagged and repaired");
  add_call_options(*command, options->call);
  add_repeated(*command, "--output,-o", options->outputs,
               "write an output to a .pt, .npy or .safetensors file; FILE:KEY writes several outputs to one file",
               "NAME=FILE");
  command->add_option("--repeat", options->repeat, "the number of warm calls; the reported time is their median")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command
      ->add_option("--compare", options->compare,
                   "compare these backends with eager, node by node, and print where they differ; the exit status is 1 "
                   "if one is wrong")
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
  CLI::Option* const sample = add_sample_option(
      *command, options->samples,
      "in place of all else, show the values that each line of the script makes of this sample of the "
      "last call, counted from 0; may be repeated. Nothing is written");
  for (const char* other : {"--output", "--repeat", "--backend", "--compare", "--capsule", "--decisions"})
    sample->excludes(other);
  add_json(*command, options->json);
}

/// `arguments` is what follows the script on the command line: it is kept from the parser, which would take the
/// script's options for its own.
void add_exec(CLI::App& app, Action& action, std::vector<std::string> arguments) {
  auto [command, options] = add_command<ExecCommand>(
      app, action, "exec", "Run a trusted Lua script with the full library; `arg` holds its arguments");
  command->add_option("-e", options->code, "run this text in the place of a script")->type_name("CODE");
  command->add_option("SCRIPT", options->script, "Lua file; - is standard input");
  CLI::Option* const ranks = command->add_option(
      "--ranks", options->ranks,
      "run the script in N processes of this machine, which train together: `dist.agree`, `dist.all_reduce` and others "
      "ask all of them; env: as one of the processes that a launcher such as torchrun has started (RANK, WORLD_SIZE, "
      "MASTER_ADDR, MASTER_PORT)");
  ranks->type_name("N|env");
  command
      ->add_option("--timeout", options->timeout,
                   "seconds that a process waits in `dist` for one that has ended or does not answer")
      ->type_name("SECONDS")
      ->needs(ranks);
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
  add_limits_option(*command, options->limits);
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
  add_limits_option(*command, options->limits);
  command->add_flag("--full-coverage", options->full_coverage, "fail if a rule takes no sample in any test");
  add_backend_option(*command, options->backend);
  command->add_option("--junit", options->junit, "write a JUnit XML report")->type_name("FILE");
  add_json(*command, options->json);
}

void add_explain(CLI::App& app, Action& action) {
  auto [command, options] =
      add_command<ExplainCommand>(app, action, "explain", "Show the captured graphs of a policy, and its graph breaks");
  add_call_options(*command, options->call);
  command->add_flag("--decomposed", options->decomposed,
                    "also show each graph in plain ATen operations (where, shifts, masks)");
  command->add_flag("--loops", options->loops,
                    "show the fusion groups of each graph: what each reads, writes and computes");
  command->add_flag("--guards", options->guards,
                    "show the guards of each graph: the conditions under which a call reuses it");
  command->add_flag("--provenance", options->provenance,
                    "run POLICY one operation at a time, and show which operation produced each NaN and Inf, and which "
                    "propagated it; POLICY may also be a TorchScript model (.pt)");
  CLI::Option* const backward = command->add_flag(
      "--backward", options->backward,
      "with --provenance: also go back from the outputs, and show which operation's derivative made a NaN or Inf of "
      "finite gradients");
  add_repeated(*command, "--gradient", options->gradients,
               "with --backward: the gradient of an output, as for --input; without any, each is 1", "NAME=FILE")
      ->needs(backward);
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
  add_call_options(*command, options->call);
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

void add_verify(CLI::App& app, Action& action) {
  auto [command, options] = add_command<VerifyCommand>(
      app, action, "verify",
      "Try the laws of a recovery policy on every kind of bad sample: no sample makes a call fail, NaN and Inf leave "
      "only with a record that tells of them, good samples keep their bits, a bad sample changes no other, the record "
      "of a sample does not depend on its batch. For each law that is broken: the smallest sample and the line. "
      "Without --input: the batches of the policy's tests, and one made from its declared types");
  add_call_options(*command, options->call);
  add_repeated(*command, "--law", options->laws, "only this law; else those that the policy promises", "NAME");
  command
      ->add_option("--search", options->search,
                   "the number of samples that are drawn, to meet several conditions of the script at once")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  command->add_option("--seed", options->seed, "the seed of the samples that are drawn")->capture_default_str();
  add_repeated(*command, "--shared", options->shared,
               "an input that all samples share (a weight), although it is as long as the batch", "NAME");
  add_json(*command, options->json);
}

void add_statistics(CLI::App& app, Action& action) {
  auto [command, options] = add_command<StatisticsCommand>(app, action, "statistics",
                                                           "Count the values that each line of a policy makes, or each "
                                                           "module of a TorchScript model (.pt) returns, and show "
                                                           "how near they come to the limits of their dtypes. POLICY "
                                                           "may also be a file of such statistics (.json). An input "
                                                           "that is given several times makes as many calls");
  add_example_options(*command, options->call);
  command->add_option("--device", options->call.device, "the device of the inputs")->capture_default_str();
  add_limits_option(*command, options->call.limits);
  command->add_option("--html", options->html, "also write a page with a chart")->type_name("FILE.html");
  command->add_option("--metrics", options->metrics, "also write metrics in Prometheus' text format")
      ->type_name("FILE.prom");
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
  add_define_option(*command, options->given);
  command->add_option("--output,-o", options->output, "write the program to this file, for triage.load_exported");
  command->add_option("--torchscript", options->torchscript,
                      "write a TorchScript module, which PyTorch loads without triage");
  command->add_option("--device", options->device, "the device of the inputs")->capture_default_str();
  command->add_flag("--decomposed", options->decomposed, "use plain ATen operations only (where, shifts, masks)");
  command->add_flag("--fixed-sizes", options->fixed_sizes, "accept only batches of this size");
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
      ->check(NumberIn(0.0, 3600.0));
  CLI::Option* const profile = command->add_option(
      "--profile", options->profile, "write a trace of warm calls for Perfetto (https://ui.perfetto.dev) to this file");
  profile->type_name("FILE.json");
  add_backend_option(*command, options->call.backend)->needs(profile)->description("the backend of the traced calls");
  add_json(*command, options->json);
}

void add_repl(CLI::App& app, Action& action) {
  auto [command, options] =
      add_command<ReplCommand>(app, action, "repl", "Run Lua line by line, with everything that `triage exec` has");
  command->footer(
      "Expressions print their values; `_` is the last one. An unfinished chunk continues on the next line.\n"
      "The history is in $XDG_STATE_HOME/triage/history, by default ~/.local/state/triage/history.\n"
      "Without a terminal, triage reads standard input line by line, and exits with status 1 if a line failed.");
}

}  // namespace

void add_policy_commands(CLI::App& app, Action& action, std::vector<std::string> arguments) {
  add_run(app, action);
  add_exec(app, action, std::move(arguments));
  for (auto add :
       {add_check, add_test, add_isolate, add_verify, add_statistics, add_explain, add_export, add_bench, add_repl})
    add(app, action);
}

}  // namespace triage::cli
