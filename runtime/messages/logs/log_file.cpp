#include "runtime/messages/logs/log_file.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <triage/error.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "runtime/messages/fork_safe_mutex.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/printable.h"

namespace triage::messages {
namespace {

class LogFile {
 public:
  static LogFile& of_process() {  // never destroyed: threads log until the process ends
    static LogFile& file = *new LogFile;
    return file;
  }

  void open(const std::string& path) {
    std::FILE* opened = nullptr;
    if (!path.empty()) {
      opened = std::fopen(path.c_str(), "ae");
      if (!opened) throw FileError(fmt::format("cannot write the log file \"{}\": {}", path, std::strerror(errno)));
    }
    const std::lock_guard lock(mutex_);
    if (file_) std::fclose(file_);
    file_ = opened;
    path_ = path;
    is_open_ = opened != nullptr;
  }

  std::string path() {
    const std::lock_guard lock(mutex_);
    return path_;
  }

  void write(const LogRecord& record) {
    if (!is_open_.load(std::memory_order_relaxed)) return;
    const auto now = std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
    const auto second = std::chrono::time_point_cast<std::chrono::seconds>(now);
    const std::string line =
        fmt::format("{:%Y-%m-%d %H:%M:%S}.{:03} [{}] {}\n", fmt::gmtime(std::chrono::system_clock::to_time_t(second)),
                    (now - second).count(), to_string(record.level), readable(record));
    const std::lock_guard lock(mutex_);
    if (!file_) return;
    if (std::fwrite(line.data(), 1, line.size(), file_) == line.size() && std::fflush(file_) == 0) return;
    fmt::print(stderr, "triage: cannot write the log file \"{}\" any longer: {}; the program goes on without it\n",
               one_line(path_), std::strerror(errno));
    std::fclose(file_);
    file_ = nullptr;
    path_.clear();
    is_open_ = false;
  }

 private:
  LogFile() {
    const char* const path = std::getenv("TRIAGE_LOG_FILE");
    try {
      open(path ? path : "");
    } catch (const FileError& error) {
      fmt::print(stderr, "triage: TRIAGE_LOG_FILE: {}; the program goes on without it\n", one_line(error.what()));
    }
  }

  ForkSafeMutex mutex_;
  std::FILE* file_ = nullptr;
  std::string path_;
  std::atomic<bool> is_open_{false};
};

}  // namespace

void set_log_file(const std::string& path) { LogFile::of_process().open(path); }

std::string log_file() { return LogFile::of_process().path(); }

void write_to_log_file(const LogRecord& record) noexcept {
  try {
    LogFile::of_process().write(record);
  } catch (const std::exception&) {  // no memory for the line
  }
}

void write_to_log_file(LogLevel level, const std::string& text) noexcept {
  try {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string heading = one_line(text.substr(0, end));
    write_to_log_file(LogRecord{level, heading, {{"body", text.substr(std::min(end + 1, text.size()))}}});
  } catch (const std::exception&) {  // no memory for the record
  }
}

}  // namespace triage::messages
