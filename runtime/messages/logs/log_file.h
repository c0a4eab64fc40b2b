#pragma once
#include <triage/log.h>

#include <string>

/// The log file of the process (TRIAGE_LOG_FILE): every record is appended to it, beside what other logs there are.
namespace triage::messages {

/// Empty: none. Throws FileError where the file cannot be opened.
void set_log_file(const std::string& path);
/// Its path; empty where there is none.
std::string log_file();
/// Nothing where there is no file. A file that takes no more (a full disk) is closed, which is told once on standard
/// error. Thread-safe.
void write_to_log_file(const LogRecord& record) noexcept;
/// The same for a text of several lines that goes elsewhere than to a log, too.
void write_to_log_file(LogLevel level, const std::string& text) noexcept;

}  // namespace triage::messages
