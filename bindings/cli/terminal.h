#pragma once
#include <fmt/format.h>
#include <triage/error.h>
#include <triage/log.h>

#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace triage::cli {

enum class Paint { heading, good, warning, error, faint };

/// `text` in colour where standard output is a terminal and NO_COLOR is not set (https://no-color.org).
std::string paint(Paint paint, std::string_view text);

/// Writes `text` as `messages::printable` makes it, but for the colours of `paint`.
void write(std::FILE* to, std::string_view text);

/// All that the program says goes through these: names, paths and messages of scripts may hold anything.
template <typename... T>
void say(std::FILE* to, fmt::format_string<T...> format, T&&... values) {
  write(to, fmt::format(format, std::forward<T>(values)...));
}
template <typename... T>
void say(fmt::format_string<T...> format, T&&... values) {
  write(stdout, fmt::format(format, std::forward<T>(values)...));
}

/// A warning or error of the runtime, or an artefact that TRIAGE_LOGS asks for; nothing for what is less.
void log_to_standard_error(const LogRecord& record);

/// One JSON value to standard output in ASCII, ended by a newline, flushed. Text that is not UTF-8 is mended, never an error.
void print_json(const nlohmann::ordered_json& json, bool on_one_line = false);
/// The object of what went wrong: `kind` is "usage", "input", "file", "config", "policy", "libtorch" or "other".
nlohmann::ordered_json error_json(const std::string& command, int status, const char* kind, const std::string& message,
                                  const Source& at = {}, const std::string& traceback = {});
/// Whether the one object of a command is out: what goes wrong then is no second one.
bool has_printed_json();

/// "; did you mean \"z\"?" for the candidate that is nearest to `word`; empty where none is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

/// To standard error, for a person who waits; overwritten by the next one. Nothing where that is no terminal.
class Progress {
 public:
  void show(const std::string& text);
  ~Progress();

 private:
  size_t shown_ = 0;
};

}  // namespace triage::cli
