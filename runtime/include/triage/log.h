#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

/// What the runtime reports while it works: versions that go live or are refused, policies that fail, graph breaks,
/// backends that hand a graph to another one. Errors of a call are not among it, those are thrown.
namespace triage {

enum class LogLevel : uint8_t {
  debug,  ///< for whoever looks for a fault
  info,   ///< what happened: a version is live
  warn,   ///< something works worse than it could
  error,  ///< something failed: a version was refused
};
/// "debug", "info", "warn", "error".
const char* to_string(LogLevel level) noexcept;

/// A part of a record for programs: `policy`, `version`, `path` or `error`.
struct LogField {
  std::string_view name;
  std::string value;
};

/// Valid while the callback runs.
struct LogRecord {
  LogLevel level;
  std::string_view text;                ///< one line: line ends and control characters are written \n, \x1b, ...
  const std::vector<LogField>& fields;  ///< values as they are, which may be several lines; empty for many records
};

/// Called by any thread, also by several at once. What it throws is dropped. It may call the runtime.
using Log = std::function<void(const LogRecord&)>;

/// Where records go that belong to no Runtime, or to one that names no log of its own. Empty: standard error, from level
/// info on. Process-wide: what the callback refers to must live as long as the process, or until another `set_log` has
/// returned, which waits until the callback runs in no other thread. Thread-safe.
void set_log(Log log);

}  // namespace triage
