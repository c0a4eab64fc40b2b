#include <c10/util/Backtrace.h>
#include <c10/util/Exception.h>
#include <triage/error.h>
#include <triage/log.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>

#include "bindings/cli/commands.h"
#include "bindings/cli/options/options.h"
#include "bindings/cli/output.h"
#include "bindings/cli/terminal.h"
#include "runtime/messages/debugging/repro_settings.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/messages/logs/artefacts.h"

namespace {

using namespace triage::cli;

constexpr int failed = 1, wrong_use = 2;

/// What went wrong, for a person or for a program. `at`: the script's line.
struct CommandFailure {
  const char* kind;  // as for error_json
  int status;
  std::string message;
  triage::Source at = {};
  std::string traceback = {};
};

int complain(const ParsedCommand& chosen, const CommandFailure& failure) {
  if (!chosen.json || has_printed_json()) {
    // A graph break shows the user's code itself.
    const bool said = failure.message.find(failure.traceback) != std::string::npos;
    say(stderr, "{}: {}\n", chosen.command, failure.message + (said ? "" : "\n" + failure.traceback));
    return failure.status;
  }
  print_json(error_json(chosen.command, failure.status, failure.kind, failure.message, failure.at, failure.traceback),
             chosen.command == "triage watch");
  return failure.status;
}

int run_action(const ParsedCommand& chosen) {
  try {
    return chosen.action();
  } catch (const UsageError& error) {
    return complain(chosen, {"usage", wrong_use, error.what()});
  } catch (const triage::InputError& error) {
    return complain(chosen, {"input", wrong_use, error.what(), error.source()});
  } catch (const triage::FileError& error) {
    return complain(chosen, {"file", wrong_use, error.what(), error.source()});
  } catch (const triage::ConfigError& error) {
    return complain(chosen, {"config", wrong_use, error.what(), error.source()});
  } catch (const triage::Error& error) {
    return complain(chosen, {"policy", failed, error.what(), error.source(), error.traceback()});
  } catch (const c10::Error& error) {
    return complain(chosen, {"libtorch", failed, triage::messages::message_of(error)});
  } catch (const std::exception& error) {
    return complain(chosen, {"other", failed, error.what()});
  }
}

}  // namespace

int main(int argc, char** argv) {
  triage::cli::reserve_standard_streams();
  // TorchScript's own loops, which a LibTorch with LLVM has, give other values for NaN than ATen does, and end the
  // process on tensors that are not plain.
  ::setenv("PYTORCH_TENSOREXPR", "0", /*overwrite=*/0);
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond `ulimit -f` is an error of the write, with a message
  // Standard output is for results; and LibTorch 1.13 spends 5 ms on the backtrace of every error, which few want to
  // see.
  triage::set_log(log_to_standard_error);
  c10::SetStackTraceFetcher([]() -> std::string { return triage::messages::verbose() ? c10::get_backtrace() : ""; });
  std::optional<std::string> wrong_variable;
  try {
    if (triage::messages::check_logs_of_environment()) {
      say("{}", PreformattedText{triage::messages::artefacts_help()});
      return finish_output("triage", 0);
    }
    triage::messages::check_repro_of_environment();
    std::error_code ignored;
    triage::messages::set_minifier_program(std::filesystem::read_symlink("/proc/self/exe", ignored).string());
  } catch (const triage::ConfigError& error) {
    wrong_variable = error.what();
  }
  const ParsedCommand chosen = parse_command_line(argc, argv);
  check_output_at_exit(chosen.command);
  if (wrong_variable) return finish_output(chosen.command, complain(chosen, {"config", wrong_use, *wrong_variable}));
  return finish_output(chosen.command, chosen.action ? run_action(chosen) : chosen.status);
}
