#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

/// The `triage` program: one file a subcommand. Each `add_...` declares the subcommand's options; choosing it on the
/// command line sets `action`, which main runs. An action returns the exit status: 0 fine, 1 the policy or script
/// failed, 2 wrong use. What it throws is printed by main as one message: UsageError, InputError, FileError and
/// ConfigError are wrong use, every other triage::Error is a failure of the policy.
namespace triage::cli {

using Action = std::function<int()>;

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void add_run(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_export(CLI::App& app, Action& action);
void add_build(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_watch(CLI::App& app, Action& action);
void add_test(CLI::App& app, Action& action);
void add_repl(CLI::App& app, Action& action);
void add_version(CLI::App& app, Action& action);

/// `script_arguments` is what follows the script on the command line: main keeps it from the parser, which would take
/// the script's options for its own.
void add_exec(CLI::App& app, Action& action, const std::vector<std::string>& script_arguments);

/// The text of a script. Throws FileError where there is no such file, or it is a folder.
std::string read_source(const std::string& path);

/// "; did you mean \"z\"?" for the candidate that is nearest to `word`; empty where none is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace triage::cli
