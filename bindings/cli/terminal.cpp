#include "bindings/cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace triage::cli {

std::string paint(Paint paint, std::string_view text) {
  static const bool colours = [] {
    const char* no_color = std::getenv("NO_COLOR");
    const char* term = std::getenv("TERM");
    bool dumb = term && std::string_view(term) == "dumb";
    return ::isatty(STDOUT_FILENO) && !(no_color && *no_color) && !dumb;
  }();
  if (!colours) return std::string(text);
  switch (paint) {
    case Paint::heading:
      return fmt::format("\x1b[1m{}\x1b[0m", text);
    case Paint::good:
      return fmt::format("\x1b[32m{}\x1b[0m", text);
    case Paint::warning:
      return fmt::format("\x1b[33m{}\x1b[0m", text);
    case Paint::error:
      return fmt::format("\x1b[31m{}\x1b[0m", text);
    case Paint::faint:
      return fmt::format("\x1b[2m{}\x1b[0m", text);
  }
  return std::string(text);
}

void print_json(const nlohmann::ordered_json& json, bool on_one_line) {
  fmt::print("{}\n", json.dump(on_one_line ? -1 : 2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  std::fflush(stdout);
}

void Progress::show(const std::string& text) {
  static const bool terminal = ::isatty(STDERR_FILENO);
  if (!terminal) return;
  fmt::print(stderr, "\r{}{}", text, std::string(shown_ > text.size() ? shown_ - text.size() : 0, ' '));
  shown_ = text.size();
}

Progress::~Progress() {
  if (shown_ > 0) fmt::print(stderr, "\r{}\r", std::string(shown_, ' '));
}

}  // namespace triage::cli
