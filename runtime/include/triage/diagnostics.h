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
  /// As TRIAGE_DEBUG_FUNCTION: only functions and policies of this name are captured; others run as scripts. Empty:
  /// all.
  std::string function = {};
  /// As TRIAGE_DEBUG_DIR with TRIAGE_COMPILE_DEBUG: the folder for what captures and compilations make. Empty: none.
  std::string debug_dir = {};
  /// As TRIAGE_REPRO_AFTER: "capture" writes a graph that its backend cannot compile as a program for `triage minify`;
  /// "aot" the halves of the joint graph, where the backend compiles these. Empty: off.
  std::string repro_after = {};
  /// As TRIAGE_REPRO_LEVEL, 1 to 4: 3 and 4 write every graph, with the values of its inputs.
  int repro_level = 2;
  /// As TRIAGE_DEBUG_DIR with TRIAGE_REPRO_AFTER: the folder for those programs.
  std::string repro_dir = "triage_repro";
  /// As TRIAGE_REPRO_BACKENDS: a Lua file that registers the backends of this program, which those programs begin with.
  std::string repro_backends = {};
  /// As TRIAGE_VERBOSE: messages about a capture or a backend that fails have LibTorch's C++ backtrace, as far as the
  /// fetcher of this process (c10::SetStackTraceFetcher) makes one.
  bool verbose = false;
  /// As TRIAGE_TRACE: the folder for a trace of what is captured, compiled, reloaded and flagged, which `triage report`
  /// shows. Empty: none.
  std::string trace_dir = {};
  /// As TRIAGE_REPLAY_RECORD: the folder for capsules of calls that fail (triage/capsule.h). Empty: none.
  std::string replay_dir = {};
  /// As TRIAGE_REPLAY_MASK: names of inputs and variables of scripts, with commas between them, whose values no capsule
  /// holds.
  std::string replay_mask = {};
  /// As TRIAGE_PROFILER_SPANS: policies, compiled functions, graphs, fused groups and kernels are spans of LibTorch's
  /// profiler (at::RecordFunction, scope USER_SCOPE), named "triage::...". Off: a call does not ask whether a profiler
  /// runs.
  bool profiler_spans = false;
};

/// What holds now: at first what the environment says.
TRIAGE_API Diagnostics get_diagnostics();
/// Throws ConfigError if `logs` or `repro_after` has a name that is unknown, or there is no such level, and FileError
/// if the file cannot be opened; nothing is changed then.
TRIAGE_API void set_diagnostics(const Diagnostics& diagnostics);
/// The table of logs, for a person.
TRIAGE_API std::string logs_help();

}  // namespace triage
