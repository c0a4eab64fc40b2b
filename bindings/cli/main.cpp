#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <triage/error.h>
#include <triage/log.h>
#include <triage/version.h>

#include <algorithm>
#include <string_view>

#include "bindings/cli/command.h"
#include "bindings/cli/terminal.h"

namespace {

using namespace triage::cli;

constexpr int failed = 1, wrong_use = 2;

std::string chosen_command(const CLI::App& app) {
  auto chosen = app.get_subcommands();
  return chosen.empty() ? "triage" : "triage " + chosen[0]->get_name();
}

int complain(const std::string& command, const std::string& message, int status) {
  say(stderr, "{}: {}\n", command, message);
  return status;
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

int run_action(const CLI::App& app, const Action& action) {
  std::string command = chosen_command(app);
  try {
    return action();
  } catch (const UsageError& error) {
    return complain(command, error.what(), wrong_use);
  } catch (const triage::InputError& error) {
    return complain(command, error.what(), wrong_use);
  } catch (const triage::FileError& error) {
    return complain(command, error.what(), wrong_use);
  } catch (const triage::ConfigError& error) {
    return complain(command, error.what(), wrong_use);
  } catch (const triage::Error& error) {
    const std::string message = error.what();
    const bool said =
        message.find(error.traceback()) != std::string::npos;  // a graph break shows the user's code itself
    return complain(command, message + (said ? "" : "\n" + error.traceback()), failed);
  } catch (const c10::Error& error) {
    return complain(command, error.what_without_backtrace(), failed);
  } catch (const std::exception& error) {
    return complain(command, error.what(), failed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  // Standard output is for results; and LibTorch 1.13 spends 5 ms on the backtrace of every error, which nobody sees.
  triage::set_log(log_to_standard_error);
  c10::SetStackTraceFetcher([]() -> std::string { return ""; });

  CLI::App app("Per-sample error records and scripted recovery for LibTorch", "triage");
  app.set_version_flag("--version", std::string("triage ") + triage::version());
  app.require_subcommand(1);
  Action action;
  std::vector<std::string> script_arguments = take_script_arguments(argc, argv);
  add_run(app, action);
  add_exec(app, action, script_arguments);
  for (auto add :
       {add_check, add_test, add_explain, add_export, add_build, add_bench, add_watch, add_repl, add_version})
    add(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    if (argc == 1) {
      say(stderr, "{}", app.help());
      return wrong_use;
    }
    return complain(chosen_command(app), parse_message(app, error, argc, argv), wrong_use);
  }
  return run_action(app, action);
}
