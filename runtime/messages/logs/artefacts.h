#pragma once
#include <triage/log.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/messages/profiling/profiler_spans.h"

namespace triage::messages {
class Logger;
}

/// What is logged of captures and compilations besides warnings: artefacts, each of which TRIAGE_LOGS or `set_logs`
/// turns on.
namespace triage::messages {

enum class Artefact : uint8_t {
  capture,
  graph_breaks,
  recompiles,
  guards,
  graph,
  graph_code,
  aot_graphs,
  fusion,
  output_code,
  kernels,
  reload
};
enum class Detail : uint8_t { off, on, more };

struct ArtefactInfo {
  const char* name;
  LogLevel level;     // from which on level names ("info") turn it on
  const char* shows;  // a clause
  const char* more;   // a clause: what `+` adds; empty where that is nothing
};
/// In the order of the enum.
const std::vector<ArtefactInfo>& artefacts();
/// The table for a person, with the syntax of TRIAGE_LOGS; ends with a newline.
std::string artefacts_help();

/// How much each artefact shows. A value; `current_logs` is what holds for the process.
class Logs {
 public:
  Detail operator[](Artefact artefact) const noexcept { return static_cast<Detail>(bits_ >> shift(artefact) & 3); }
  void set(Artefact artefact, Detail detail) noexcept;
  /// "name", "+name" (more), "-name" (off); "all"; or a level: error, warning (the default), info, debug. Throws
  /// ConfigError that names what is nearest.
  void apply(std::string_view word);
  void apply(std::string_view word, Detail detail);
  void apply_level(std::string_view name);
  /// Words with commas between them, from left to right.
  void apply_list(std::string_view words);
  /// Words that give this; empty for the default.
  std::string text() const;

 private:
  friend Logs current_logs() noexcept;
  friend void set_current_logs(Logs logs) noexcept;
  static int shift(Artefact artefact) { return 2 * static_cast<int>(artefact); }
  void set_level(LogLevel level) noexcept;
  uint32_t bits_ = static_cast<uint32_t>(Detail::on) << 2 * static_cast<int>(Artefact::graph_breaks);
};

/// For the process; at first what TRIAGE_LOGS asks for. Thread-safe. A word of TRIAGE_LOGS that nobody knows is a
/// warning here, and an error of the program `triage` (check_logs_of_environment).
Logs current_logs() noexcept;
void set_current_logs(Logs logs) noexcept;
/// Throws ConfigError where TRIAGE_LOGS is wrong. True where it asks for help.
bool check_logs_of_environment();

inline bool logs(Artefact artefact, Detail least = Detail::on) noexcept { return current_logs()[artefact] >= least; }

/// Writes one record to the log of this thread (LogTo): `heading` on one line, and `body`, which may be several.
/// `graph`: the name of the graph that it is of.
void log_artefact(Artefact artefact, LogLevel level, std::string_view heading, std::string_view body = {},
                  std::string_view graph = {}) noexcept;
/// The same for a text whose first line is the heading, with fields that the record has besides; `text` of the record
/// is all of it.
void log_artefact(const Logger& logger, Artefact artefact, LogLevel level, const std::string& text,
                  std::vector<LogField> fields) noexcept;
/// The name of the artefact that a record is of; empty for other records. And its body.
std::string_view artefact_of(const LogRecord& record) noexcept;
std::string_view body_of(const LogRecord& record) noexcept;
/// The record as people read it: "[graph] heading", then the body with each line indented, so that none looks like a
/// record.
std::string readable(const LogRecord& record);

/// A step of a compilation: its time counts as that of a phase (compile_times), it is a span of LibTorch's profiler,
/// and the log of `capture` has that it begins, and, unless an exception ends it, that it has ended. No step contains
/// another.
class CompilationStep {
 public:
  /// "Step 1: capture of 'f' begins"; the time is that of `phase` of `function`.
  CompilationStep(int number, std::string phase, std::string function, const std::string& what);
  ~CompilationStep();
  /// Added to the end: "5 operations".
  void note(std::string outcome) { outcome_ = std::move(outcome); }
  CompilationStep(const CompilationStep&) = delete;
  CompilationStep& operator=(const CompilationStep&) = delete;

 private:
  std::string phase_, function_;
  std::string heading_, outcome_;  // empty: nothing is logged
  int exceptions_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const ProfilerSpan span_{[this] { return phase_ + ' ' + function_; }};
};

/// Only functions and policies whose name, or place ("file.lua:3"), matches are captured: a list of patterns (`*`, `?`)
/// with commas between them, at first TRIAGE_DEBUG_FUNCTION; empty: all. Thread-safe. `place` is asked only where there
/// are patterns: to find it reads source lines.
bool is_debugged(const std::string& name, const std::function<std::string()>& place) noexcept;
std::string debug_function();
void set_debug_function(std::string patterns);

}  // namespace triage::messages
