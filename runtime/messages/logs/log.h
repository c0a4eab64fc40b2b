#pragma once
#include <triage/log.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/messages/thread_context.h"

namespace triage::messages {

/// Writes records to a callback, each on one line. A copy writes to the same. Thread-safe; never throws.
class Logger {
 public:
  /// To the log of the process (set_log).
  Logger() noexcept;
  /// Empty: the same.
  explicit Logger(Log log);

  void write(LogLevel level, std::string_view text, const std::vector<LogField>& fields = {}) const noexcept;
  /// Returns when the callback does not run in another thread. It is never called again: what is written later is
  /// dropped.
  void close() noexcept;
  static void set_log_of_process(Log log);

 private:
  struct LogSink;
  std::shared_ptr<LogSink> sink_;
};

/// While alive, `warn` on this thread writes to `logger`.
class LogTo {
 public:
  explicit LogTo(const Logger& logger) : before_(std::exchange(context.logger, &logger)) {}
  explicit LogTo(Logger&&) = delete;  // it is pointed to
  ~LogTo() { context.logger = before_; }
  LogTo(const LogTo&) = delete;
  LogTo& operator=(const LogTo&) = delete;

  /// That of the innermost scope, else of the process.
  static const Logger& current() noexcept;

 private:
  const Logger* before_;
};

/// For code that is deep below any Runtime: backends and compilers.
inline void warn(std::string_view text) { LogTo::current().write(LogLevel::warn, text); }

}  // namespace triage::messages
