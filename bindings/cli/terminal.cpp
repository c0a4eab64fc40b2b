#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "bindings/cli/output.h"
#include "bindings/cli/terminal.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/logs/log_file.h"
#include "runtime/messages/near_words.h"
#include "runtime/messages/printable.h"

namespace triage::cli {
namespace {

constexpr std::string_view kPlain = "\x1b[0m";

std::string_view start_of(Paint paint) {
  switch (paint) {
    case Paint::heading:
      return "\x1b[1m";
    case Paint::good:
      return "\x1b[32m";
    case Paint::warning:
      return "\x1b[33m";
    case Paint::error:
      return "\x1b[31m";
    case Paint::faint:
      return "\x1b[2m";
  }
  return kPlain;
}

bool has_colours() {
  static const bool colours = [] {
    const char* no_color = std::getenv("NO_COLOR");
    const char* term = std::getenv("TERM");
    bool dumb = term && std::string_view(term) == "dumb";
    return ::isatty(STDOUT_FILENO) && !(no_color && *no_color) && !dumb;
  }();
  return colours;
}

/// Bytes of the colour that `text` begins with; 0 where it begins with none.
size_t colour_size(std::string_view text) {
  if (!has_colours()) return 0;
  for (const Paint paint : {Paint::heading, Paint::good, Paint::warning, Paint::error, Paint::faint})
    if (text.substr(0, start_of(paint).size()) == start_of(paint)) return start_of(paint).size();
  return text.substr(0, kPlain.size()) == kPlain ? kPlain.size() : 0;
}

}  // namespace

std::string paint(Paint paint, std::string_view text) {
  return has_colours() ? fmt::format("{}{}{}", start_of(paint), text, kPlain) : std::string(text);
}

void write(std::FILE* to, std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t colour = colour_size(text);
    const size_t end = colour > 0 ? colour : std::min(text.find('\x1b', 1), text.size());
    shown += colour > 0 ? std::string(text.substr(0, colour)) : messages::printable(text.substr(0, end));
    text.remove_prefix(end);
  }
  write_bytes(to, shown);
}

std::string in_place(std::string_view text) {
  const auto begins_line = [&](size_t at, std::string_view unless) {
    return at > 0 && text[at - 1] == '\n' && unless.find(text[at]) == std::string_view::npos;
  };
  bool looks_like_one = false;
  for (size_t at = 0; at < text.size(); ++at) looks_like_one |= begins_line(at, " \t\n");
  if (!looks_like_one) return std::string(text);
  std::string placed;
  for (size_t at = 0; at < text.size(); ++at) {
    if (begins_line(at, "\n")) placed += "    ";
    placed += text[at];
  }
  return placed;
}

std::function<void(const std::string&)> prints_to(std::FILE* to) {
  return [to](const std::string& text) {
    say(to, "print: {}\n", text);
    flush(to);
  };
}

void log_to_standard_error(const LogRecord& record) {
  const bool artefact = !messages::artefact_of(record).empty();
  if (artefact ? !messages::log_file().empty() : record.level < LogLevel::warn) return;
  say(stderr, "triage: {}\n", messages::readable(record));
}

namespace {
bool json_is_out = false;
}

bool has_printed_json() { return json_is_out; }

void print_json(const nlohmann::ordered_json& json, bool on_one_line) {
  say("{}\n",
      PreformattedText{json.dump(on_one_line ? -1 : 2, ' ', true, nlohmann::ordered_json::error_handler_t::replace)});
  flush(stdout);
  json_is_out |= !on_one_line;
}

nlohmann::ordered_json error_json(const std::string& command, int status, const char* kind, const std::string& message,
                                  const Source& at, const std::string& traceback) {
  using Json = nlohmann::ordered_json;
  Json error = {{"kind", kind}, {"message", message}};
  error["file"] = at.file.empty() ? Json() : Json(at.file);
  error["line"] = at.line > 0 ? Json(at.line) : Json();
  error["traceback"] = traceback.empty() ? Json() : Json(traceback);
  return {{"ok", false}, {"command", command}, {"status", status}, {"error", error}};
}

void Progress::show(const std::string& text) {
  static const bool terminal = ::isatty(STDERR_FILENO);
  if (!terminal) return;
  const std::string line = messages::one_line(text);
  fmt::print(stderr, "\r{}{}", line, std::string(shown_ > line.size() ? shown_ - line.size() : 0, ' '));
  shown_ = line.size();
}

Progress::~Progress() {
  if (shown_ > 0) fmt::print(stderr, "\r{}\r", std::string(shown_, ' '));
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  return messages::did_you_mean(messages::close_words(word, candidates), '"');
}

}  // namespace triage::cli
