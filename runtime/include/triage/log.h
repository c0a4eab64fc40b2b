#pragma once
#include <triage/api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

/// The records of the runtime: versions that go live or are refused, policies that fail, graph breaks, backends that
/// fall back to another one. Errors of a call are not logged but thrown.
namespace triage {

enum class LogLevel : uint8_t {
  debug,  ///< for debugging
  info,   ///< an event: a version is live
  warn,   ///< something works worse than it could
  error,  ///< something failed: a version was refused
};
/// "debug", "info", "warn", "error".
TRIAGE_API const char* to_string(LogLevel level) noexcept;

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

/// Any thread may call it, also several at once; the thread that reports waits until it returns. It may call the
/// runtime, whose records then reach it again. Its exceptions are dropped: none reaches a call.
using Log = std::function<void(const LogRecord&)>;

/// Sets the log for records without a Runtime, and for Runtimes without a log of their own. Empty: standard error, from
/// level info on. Process-wide: objects that the callback refers to must live until the process ends, or until another
/// `set_log` returns, which waits until no thread runs the callback. Called by the callback itself, it does not wait.
/// Thread-safe.
TRIAGE_API void set_log(Log log);

}  // namespace triage
