#include "runtime/messages/logs/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "runtime/messages/debugging/debug_folder.h"
#include "runtime/messages/fork_safe_mutex.h"
#include "runtime/messages/immortal.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/logs/log_file.h"
#include "runtime/messages/printable.h"

namespace triage {
namespace messages {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warn:
      return spdlog::level::warn;
    default:
      return spdlog::level::err;
  }
}

/// A logger of our own: the host may use spdlog's default one. Its mutex, too: a fork cuts that of spdlog in two.
struct StandardError {
  StandardError() { logger.set_level(spdlog::level::debug); }

  ForkSafeMutex mutex;
  spdlog::logger logger{"triage", std::make_shared<spdlog::sinks::stderr_sink_st>()};
};

/// Standard output belongs to the host's program. Artefacts were asked for, whatever their level; where there is a log
/// file, they are there.
void write_to_standard_error(const LogRecord& record) {
  static auto& standard_error = *new StandardError;
  const bool artefact = !artefact_of(record).empty();
  if (artefact ? !log_file().empty() : record.level < LogLevel::info) return;
  const std::string text = readable(record);
  const std::lock_guard lock(standard_error.mutex);
  standard_error.logger.log(level_of(record.level), "{}", text);
}

}  // namespace

/// No lock is held while a callback runs: it may call the runtime, which logs.
struct Logger::LogSink {
  void write(const LogRecord& record) {
    auto lock = locked();
    if (!open_) return;
    const std::shared_ptr<const Log> log = log_;
    running_.insert(std::this_thread::get_id());
    lock.unlock();
    try {
      log ? (*log)(record) : write_to_standard_error(record);
    } catch (...) {  // whoever logs goes on
    }
    lock = locked();
    if (const auto own = running_.find(std::this_thread::get_id()); own != running_.end()) running_.erase(own);
    done_.notify_all();
  }

  /// Returns when what was there before runs no more; in one of its calls at once, for two of them would wait for each
  /// other.
  void replace(std::shared_ptr<const Log> log) {
    auto lock = locked();
    log_ = std::move(log);
    if (!running_.contains(std::this_thread::get_id())) done_.wait(lock, [&] { return running_.empty(); });
  }

  /// Returns when it runs in no other thread.
  void close() {
    auto lock = locked();
    log_ = nullptr;
    open_ = false;
    done_.wait(lock, [&] { return running_.size() == running_.count(std::this_thread::get_id()); });
  }

  static std::shared_ptr<LogSink> of_process() noexcept { return {std::shared_ptr<void>(), &immortal<LogSink>()}; }

 private:
  std::unique_lock<std::mutex> locked() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (std::exchange(process_, ::getpid()) != ::getpid()) {  // a forked child has none of the threads of its parent
      running_.clear();
      new (&done_) std::condition_variable;  // the old one may count them, and its destructor would wait for them
    }
    return lock;
  }

  ForkSafeMutex mutex_;  // what follows
  pid_t process_ = ::getpid();
  std::condition_variable done_;
  std::shared_ptr<const Log> log_;  // null: standard error
  bool open_ = true;
  std::multiset<std::thread::id> running_;  // the threads in which the callback runs
};

Logger::Logger() noexcept : sink_(LogSink::of_process()) {}

Logger::Logger(Log log) : Logger() {
  if (!log) return;
  sink_ = std::make_shared<LogSink>();
  sink_->replace(std::make_shared<const Log>(std::move(log)));
}

void Logger::write(LogLevel level, std::string_view text, const std::vector<LogField>& fields) const noexcept {
  try {
    const std::string line = one_line(text);
    const LogRecord record{level, line, fields};
    write_to_log_file(record);
    write_to_debug_log(record);
    sink_->write(record);
  } catch (const std::exception&) {  // no memory for the line
  }
}

void Logger::close() noexcept {
  if (sink_ != LogSink::of_process()) sink_->close();
}

void Logger::set_log_of_process(Log log) {
  LogSink::of_process()->replace(log ? std::make_shared<const Log>(std::move(log)) : nullptr);
}

const Logger& LogTo::current() noexcept { return context.logger ? *context.logger : immortal<Logger>(); }

}  // namespace messages

const char* to_string(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warn:
      return "warn";
    default:
      return "error";
  }
}

void set_log(Log log) { messages::Logger::set_log_of_process(std::move(log)); }

}  // namespace triage
