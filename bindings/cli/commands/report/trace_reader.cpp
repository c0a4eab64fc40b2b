#include "bindings/cli/commands/report/trace_reader.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "bindings/cli/commands.h"
#include "runtime/files/disk.h"
#include "runtime/files/json.h"
#include "runtime/messages/debugging/trace_file.h"
#include "runtime/messages/printable.h"

namespace triage::cli {
namespace {

namespace fs = std::filesystem;
using Event = nlohmann::json;

constexpr size_t longest_line = size_t{16} << 20;
constexpr files::JsonBounds bounds{.depth = 8, .values = 500'000};

/// The lines of a file, one after the other. A file may be larger than memory, and so may a line.
class FileLineReader {
 public:
  explicit FileLineReader(const std::string& path) : file_(path), rest_(file_.size()) {}

  /// False at the end. A line that is too long is empty, and `too_long` is set.
  bool next(std::string& line, bool& too_long) {
    line.clear();
    too_long = false;
    while (begin_ < end_ || fill()) {
      const std::string_view read(buffer_.data() + begin_, end_ - begin_);
      const size_t length = std::min(read.find('\n'), read.size());
      too_long |= line.size() + length > longest_line;
      if (!too_long) line += read.substr(0, length);
      begin_ += std::min(length + 1, read.size());
      if (length == read.size()) continue;
      if (too_long) line.clear();
      return true;
    }
    if (too_long) line.clear();
    return too_long || !line.empty();
  }

 private:
  bool fill() {
    if (rest_ == 0) return false;
    begin_ = 0;
    end_ = static_cast<size_t>(std::min<uint64_t>(rest_, buffer_.size()));
    file_.read(file_.size() - rest_, buffer_.data(), end_);
    rest_ -= end_;
    return true;
  }

  const files::InputFile file_;
  uint64_t rest_;
  std::string buffer_ = std::string(size_t{1} << 16, '\0');
  size_t begin_ = 0, end_ = 0;
};

/// Nothing where the line is no event.
std::optional<Event> event_of(const std::string& line) {
  try {
    Event event = files::parse_json(line, "the line", bounds);
    if (event.is_object() && event.contains("event") && event["event"].is_string()) return event;
  } catch (const files::Malformed&) {
  }
  return std::nullopt;
}

void check_header(const std::string& path, const std::optional<Event>& header) {
  if (!header || (*header)["event"] != "trace" || !header->contains("format"))
    throw FileError(
        fmt::format("\"{}\" is no trace: its first line should say so; expected a file that TRIAGE_TRACE made",
                    messages::one_line(path)));
  if (const Event& format = (*header)["format"]; format != messages::trace_format)
    throw FileError(
        fmt::format("\"{}\" is a trace of format {}, and this triage reads format {}; make the page with the "
                    "triage that wrote it",
                    messages::one_line(path), messages::one_line(format.dump().substr(0, 20)), messages::trace_format));
}

}  // namespace

void read_trace(const std::string& path, const std::function<void(const Event&)>& on_event, SkippedLines& skipped) {
  FileLineReader lines(path);
  std::string line;
  bool too_long = false, first = true;
  try {
    while (lines.next(line, too_long)) {
      const std::optional<Event> event = too_long ? std::nullopt : event_of(line);
      if (first) check_header(path, event);
      first = false;
      if (event)
        on_event(*event);
      else
        ++(too_long ? skipped.too_long : skipped.damaged);
    }
  } catch (const files::Malformed&) {  // it became shorter meanwhile
    ++skipped.damaged;
  }
  if (first) check_header(path, std::nullopt);
}

std::vector<std::string> trace_files(const std::vector<std::string>& paths) {
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      found.push_back(path);
      continue;
    }
    const size_t before = found.size();
    std::error_code failed;
    for (fs::directory_iterator entry(path, failed), end; !failed && entry != end; entry.increment(failed)) {
      const std::string name = entry->path().filename().string();
      if (name.starts_with("trace-") && name.ends_with(".jsonl")) found.push_back(entry->path().string());
    }
    if (failed) throw FileError(fmt::format("cannot read the folder \"{}\": {}", path, failed.message()));
    if (found.size() == before)
      throw UsageError(
          fmt::format("the folder \"{}\" has no trace-*.jsonl; run a program with TRIAGE_TRACE={} first", path, path));
    std::sort(found.begin() + static_cast<std::ptrdiff_t>(before), found.end());
  }
  return found;
}

}  // namespace triage::cli
