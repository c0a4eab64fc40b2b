#pragma once
#include <functional>
#include <string>

namespace triage::cli {

/// What the command line says to do.
struct ParsedCommand {
  std::string command;          // "triage run", for messages
  std::function<int()> action;  // returns the exit status; empty where all is done (--help, wrong use)
  int status = 0;               // then the exit status
  bool json = false;            // errors are printed as JSON
};

/// --help and --version are answered here. Wrong use is an action that throws UsageError.
ParsedCommand parse_command_line(int argc, char** argv);

}  // namespace triage::cli
