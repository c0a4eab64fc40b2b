#include <c10/util/Exception.h>
#include <triage/error.h>
#include <triage/log.h>

#include "bindings/cli/commands.h"
#include "bindings/cli/options.h"
#include "bindings/cli/terminal.h"
#include "runtime/messages/artefacts.h"

namespace {

using namespace triage::cli;

constexpr int failed = 1, wrong_use = 2;

int complain(const std::string& command, const std::string& message, int status) {
  say(stderr, "{}: {}\n", command, message);
  return status;
}

int run_action(const Chosen& chosen) {
  const std::string& command = chosen.command;
  try {
    return chosen.action();
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
  try {
    if (triage::messages::check_logs_of_environment()) {
      say("{}", triage::messages::artefacts_help());
      return 0;
    }
  } catch (const triage::ConfigError& error) {
    return complain("triage", error.what(), wrong_use);
  }
  const Chosen chosen = parse_command_line(argc, argv);
  return chosen.action ? run_action(chosen) : chosen.status;
}
