#pragma once
#include <fmt/format.h>
#include <triage/error.h>
#include <triage/log.h>

#include <cstdio>
#include <ctime>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace triage::cli {

enum class Paint { heading, good, warning, error, faint };

/// `text` in colour where standard output is a terminal and NO_COLOR is not set (https://no-color.org).
std::string paint(Paint paint, std::string_view text);

/// Writes `text` as `messages::printable` makes it, but for the colours of `paint`.
void write(std::FILE* to, std::string_view text);

/// Lines that the program has laid out itself, of parts that are on one line each.
struct PreformattedText {
  std::string text;
};

/// A text in its place on a line. Further lines of it are indented, unless they are: none looks like a line of the
/// program, such as an event of `triage watch`.
std::string in_place(std::string_view text);
inline std::string in_place(const PreformattedText& block) { return block.text; }
template <typename T>
requires(!std::is_convertible_v<const T&, std::string_view>) const T& in_place(const T& value) {
  static_assert(std::is_arithmetic_v<T> || std::is_same_v<T, std::tm>, "a list may hold text: make one of it");
  return value;
}

/// All that the program says goes through these: names, paths and messages of scripts may hold anything.
template <typename... T>
void say(std::FILE* to, fmt::format_string<T...> format, T&&... values) {
  std::tuple<decltype(in_place(values))...> shown{in_place(values)...};
  std::apply(
      [&](auto&... value) { write(to, fmt::vformat(fmt::string_view(format), fmt::make_format_args(value...))); },
      shown);
}
template <typename... T>
void say(fmt::format_string<T...> format, T&&... values) {
  say<T...>(stdout, format, std::forward<T>(values)...);
}

/// Where `print` of a policy writes: "print: " tells its lines from those of the program.
std::function<void(const std::string&)> prints_to(std::FILE* to);

/// A warning or error of the runtime, or an artefact that TRIAGE_LOGS asks for; nothing for what is less.
void log_to_standard_error(const LogRecord& record);

/// One JSON value to standard output in ASCII, ended by a newline, flushed. Text that is not UTF-8 is mended, never an
/// error.
void print_json(const nlohmann::ordered_json& json, bool on_one_line = false);
/// The object of what went wrong: `kind` is "usage", "input", "file", "config", "policy", "libtorch" or "other".
nlohmann::ordered_json error_json(const std::string& command, int status, const char* kind, const std::string& message,
                                  const Source& at = {}, const std::string& traceback = {});
/// Whether the one object of a command is out: what goes wrong then is no second one.
bool has_printed_json();

/// "; did you mean \"z\"?" for the candidates that are near to `word`; empty where none is.
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

template <>
struct fmt::formatter<triage::cli::PreformattedText> : fmt::formatter<fmt::string_view> {
  template <typename Context>
  auto format(const triage::cli::PreformattedText& block, Context& context) const {
    return fmt::formatter<fmt::string_view>::format(block.text, context);
  }
};
