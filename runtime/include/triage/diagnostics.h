#pragma once
#include <triage/api.h>

#include <string>

/// What triage logs of captures and compilations besides warnings, for the whole process. Thread-safe.
namespace triage {

struct Diagnostics {
  /// As TRIAGE_LOGS: "+capture,graph,-graph_breaks", or a level: "error", "warning" (the default), "info", "debug".
  std::string logs = {};
  /// As TRIAGE_LOG_FILE: every record is appended to this file, also those that the log callback gets. Empty: none.
  std::string log_file = {};
  /// As TRIAGE_DEBUG_FUNCTION: only functions and policies of this name are captured; others run as scripts. Empty: all.
  std::string function = {};
};

/// What holds now: at first what the environment says.
TRIAGE_API Diagnostics get_diagnostics();
/// Throws ConfigError if `logs` has a name that is unknown, and FileError if the file cannot be opened; nothing is changed then.
TRIAGE_API void set_diagnostics(const Diagnostics& diagnostics);
/// The table of logs, for a person.
TRIAGE_API std::string logs_help();

}  // namespace triage
