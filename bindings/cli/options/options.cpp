// The command line: the options of all commands, their help, and what is said to wrong use.
#include "bindings/cli/options/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/backend.h>
#include <triage/version.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string_view>
#include <vector>

#include "bindings/cli/commands/generate/command_tree.h"
#include "bindings/cli/options/shared.h"
#include "bindings/cli/terminal.h"

namespace triage::cli {
namespace {

constexpr int wrong_use = 2;

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
  const auto add = [&command = command](const char* name, std::string& into, const char* help, const char* type) {
    command->add_option(name, into, help)->type_name(type);
  };
  add("--output,-o", options->output, "of pack: the file to write. Default: DIR/bundle.json", "FILE");
  add("--name", options->name, "of pack: the bundle. Default: that of the old bundle.json, or the folder", "NAME");
  add("--version", options->version, "of pack: its version. Default: a hash of its files", "VERSION");
  add("--triage", options->triage, "of pack: for triage \">=0.1, <2\". Default: as before, or this and later", "RANGE");
  add_define_option(*command, options->given);
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
  command
      .add_option(
          "--decisions", options.decisions,
          "with a candidate: append to a decision log what happens to the policy, and a line for each call that "
          "flags samples or fails")
      ->type_name("FILE.jsonl");
  command
      .add_option("--cache", options.cache, "with a candidate: keep the sources in this folder, for triage incident")
      ->type_name("DIR");
  command.add_option("--share", options.share, "the candidate's share of the calls; default: 0.05, for --shadow 1")
      ->check(NumberIn(1e-6, 1.0));
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
      ->needs(canary)
      ->check(NumberIn(0.0, 1e300));
  command.add_option("--p99-ratio", options.p99_ratio, "revert one whose calls take so many times as long; 0: never")
      ->capture_default_str()
      ->needs(canary)
      ->check(NumberIn(0.0, 1e300));
  command.add_option("--tolerance", options.tolerance, "absolute differences of outputs that a shadow may have")
      ->capture_default_str()
      ->needs(shadow)
      ->check(NumberIn(0.0, 1e300));
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
  add_define_option(*command, options->call.given);
  command->add_flag("--json", options->json, "print one JSON object per line");
  add_candidate_options(*command, *options);
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
      ->check(NumberIn(0.1, 3600.0));
  command->add_option("--memory", options->memory_mib, "MiB of memory for each candidate")
      ->capture_default_str()
      ->check(CLI::Range(64, 1 << 20));
  command->add_option("--seconds", options->seconds, "seconds in all; then the smallest graph so far is the result")
      ->capture_default_str()
      ->check(NumberIn(1.0, 86400.0));
  add_json(*command, options->json);
}

void add_replay(CLI::App& app, Action& action) {
  auto [command, options] = add_command<ReplayCommand>(
      app, action, "replay", "Repeat a call from its capsule, and compare what comes of it, bit by bit");
  command->add_option("CAPSULE", options->capsule, "a .pt file that TRIAGE_REPLAY_RECORD or `run --capsule` made")
      ->required();
  command->add_option("--backend", options->backend, "another backend than that of the call")->type_name("NAME");
  command->add_flag(
      "--trusted", options->trusted,
      "give the script the full library and every operator, as triage exec does: for capsules of your own");
  command->add_flag("--minify", options->minify,
                    "hand each graph that fails or is wrong to the minifier, in the folder CAPSULE.repro");
  command->add_option("--extract", options->extract, "also write the sources and capsule.json to this folder")
      ->type_name("DIR");
  add_sample_option(*command, options->samples,
                    "also show the values that each line of the script makes of this sample of the capsule, counted "
                    "from 0; may be repeated");
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
  add("--version", options->version, "only decisions of this version, or of versions whose hash begins so", "VERSION");
  add("--code", options->code, "only samples with an error of this code", "CODE");
  add("--location", options->location, "only samples with an error at this location; a pattern such as encoder.*",
      "PATTERN");
  add("--sample", options->sample, "only the sample that the host gave this name", "ID");
  add("--decision", options->decision, "only the decision that the host gave this name", "ID");
  add("--since", options->since, "only decisions at this time in UTC or later; 10m: ten minutes ago or later", "TIME");
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

void add_incident(CLI::App& app, Action& action) {
  auto [command, options] = add_command<IncidentCommand>(
      app, action, "incident", "Read from a decision log what changed, who is affected, and how to go back");
  command->add_option("LOG", options->files, "files of the decision log, rotated ones too; - is standard input")
      ->required();
  const auto add = [command = command](const char* name, std::string& into, const char* help, const char* type) {
    command->add_option(name, into, help)->type_name(type);
  };
  add("--cache", options->cache,
      "RuntimeOptions::cache_dir of the host, which keeps the sources; default: where the log says", "DIR");
  add("--policy", options->policy, "only this policy", "NAME");
  add("--since", options->since, "only what happened at this time in UTC or later; 10m: ten minutes ago or later",
      "TIME");
  add("--until", options->until, "only what happened at this time or before; 2026-05-04 includes that day", "TIME");
  command->add_flag("--ids", options->ids, "list the samples that were flagged");
  add("--html", options->html, "also write a page with charts", "FILE.html");
  command->footer(
      "Hosts write such logs with triage::DecisionLog. The share of a version is that of its flagged samples, and of "
      "the\n"
      "samples of calls that it failed. The way back is the version that was live last of those with less than half "
      "of\n"
      "the share of the live one. Damaged lines are counted.");
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
      app, action, "doctor", "Check what triage runs on: libraries, processor, threads, file watches, GPU");
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
      say("{}", PreformattedText{text});
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
    if (word == "--ranks" || word == "--timeout") ++end;
    if (word.rfind("--ranks", 0) == 0 || word.rfind("--timeout", 0) == 0) continue;
    if (word == "-e")
      ++end;
    else if (word != "-" && word.rfind('-', 0) == 0)
      return {};  // an option that the parser answers
    found = true;
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

/// What to say of a command or an option of the chosen command that earlier versions had; empty where there is none.
std::string gone_message(const CLI::App& app, int argc, char** argv) {
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) return argc > 1 ? text_if_gone(fmt::format("triage {}", argv[1])) : "";
  for (const std::string& word : chosen[0]->remaining())
    if (const std::string gone = text_if_gone(word.substr(0, word.find('='))); !gone.empty()) return gone;
  return "";
}

/// CLI11 only says that a word was not expected; most often it is a misspelt command.
std::string parse_message(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  if (const std::string gone = gone_message(app, argc, argv); !gone.empty()) return gone;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-') {
    return with_help(fmt::format("there is no command \"{}\"{}", argv[1], did_you_mean(argv[1], names)), "triage");
  }
  std::string text = error.what();
  // Of a misspelt option and one that is missing, CLI11 tells the latter, which is the less helpful.
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) && !app.get_subcommands().empty())
    for (const std::string& word : app.get_subcommands()[0]->remaining())
      if (word.rfind('-', 0) == 0 && word != "-") {
        text = fmt::format("The following argument was not expected: {}", word);
        break;
      }
  for (char& c : text) c = c == '\n' ? ' ' : c;
  return with_help(text.substr(0, text.find_last_not_of(" .") + 1) + guess_option(app, text), chosen_command(app));
}

/// Most often a variable of the shell that is not set. Taken for an option that is not given, it would ask for
/// everything.
void refuse_empty_values(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands({}))
    for (CLI::Option* option : command->get_options())
      if (option->get_items_expected_max() > 0)
        option->check([](const std::string& value) {
          return std::string(value.empty() ? "its value is empty; is a variable of the shell not set?" : "");
        });
}

void set_up(CLI::App& app, Action& action, std::vector<std::string> script_arguments) {
  app.set_version_flag("-V,--version", std::string("triage ") + version());
  app.require_subcommand(1);
  add_policy_commands(app, action, std::move(script_arguments));
  for (auto add : {add_bundle, add_watch, add_minify, add_replay, add_decisions, add_incident, add_report, add_doctor,
                   add_version, add_generate, add_help})
    add(app, action);
  refuse_empty_values(app);
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

ParsedCommand parse_command_line(int argc, char** argv) {
  CLI::App app(summary, "triage");
  Action action;
  std::vector<std::string> script_arguments = take_script_arguments(argc, argv);
  set_up(app, action, std::move(script_arguments));
  const bool json = asks_for_json(argc, argv);
  const auto wrong = [&](const std::string& message) {
    return ParsedCommand{chosen_command(app), [message]() -> int { throw UsageError(message); }, wrong_use, json};
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help and --version
      std::ostringstream text;
      const int status = app.exit(error, text, text);
      say("{}", PreformattedText{text.str()});
      return {"triage", nullptr, status};
    }
    if (argc > 1) return wrong(parse_message(app, error, argc, argv));
    say(stderr, "{}", PreformattedText{app.help()});
    return {"triage", nullptr, wrong_use};
  } catch (const UsageError& error) {
    return wrong(error.what());
  }
  return {chosen_command(app), std::move(action), 0, json};
}

}  // namespace triage::cli
