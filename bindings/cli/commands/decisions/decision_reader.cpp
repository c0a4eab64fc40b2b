#include "bindings/cli/commands/decisions/decision_reader.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <triage/error.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "runtime/files/disk.h"
#include "runtime/files/json.h"
#include "runtime/messages/printable.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

/// More than a line with the most samples and errors has.
constexpr size_t longest_line = size_t{64} << 20;
constexpr files::JsonBounds bounds{.depth = 6, .values = 4'000'000};
constexpr size_t most_named = 10;

constexpr std::array texts = {"decision_id", "trace_id", "policy",  "path",         "hash",
                              "answered",    "form",     "failure", "failure_kind", "capsule"};
constexpr std::array counts = {"version", "live_version", "batch", "flagged", "repaired", "full"};
constexpr std::array event_texts = {"event",         "policy", "bundle", "path",  "hash",  "kept",          "by",
                                    "previous_hash", "reason", "kind",   "param", "value", "previous_value"};
constexpr std::array event_counts = {"version", "bundle_version", "previous_version"};

bool is_text(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_string();
}

bool is_count(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_number_unsigned();
}

/// "2026-05-04T03:02:01.000123Z": a text that sorts as time does.
bool is_time(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return false;
  constexpr std::string_view shape = "dddd-dd-ddTdd:dd:dd.ddddddZ";
  const std::string& time = found->get_ref<const std::string&>();
  return time.size() == shape.size() && std::equal(time.begin(), time.end(), shape.begin(), [](char c, char wanted) {
           return wanted == 'd' ? c >= '0' && c <= '9' : c == wanted;
         });
}

template <size_t size>
bool are_texts(const Json& object, const std::array<const char*, size>& names) {
  return std::all_of(names.begin(), names.end(), [&](const char* name) { return is_text(object, name); });
}

template <size_t size>
bool are_counts(const Json& object, const std::array<const char*, size>& names) {
  return std::all_of(names.begin(), names.end(), [&](const char* name) { return is_count(object, name); });
}

/// Counts of samples, where there are any.
bool are_totals(const Json& object, const char* name) {
  constexpr std::array of_samples = {"samples", "flagged", "repaired"};
  const auto found = object.find(name);
  return found == object.end() || (found->is_object() && are_counts(*found, of_samples));
}

bool is_event(const Json& line) {
  return are_texts(line, event_texts) && are_counts(line, event_counts) && are_totals(line, "previous_totals") &&
         (!line.contains("share") || line["share"].is_number());
}

bool is_error(const Json& error) {
  const auto position = error.find("position");
  const auto is_index = [](const Json& index) { return index.is_number_unsigned(); };
  return error.is_object() && is_text(error, "location") && is_text(error, "code") && is_text(error, "severity") &&
         (position == error.end() ||
          (position->is_array() && std::all_of(position->begin(), position->end(), is_index)));
}

bool is_sample(const Json& sample) {
  if (!sample.is_object() || !is_count(sample, "sample") || !is_text(sample, "sample_id") || !is_text(sample, "done"))
    return false;
  const auto errors = sample.find("errors");
  return errors == sample.end() || (errors->is_array() && std::all_of(errors->begin(), errors->end(), is_error));
}

bool is_decision(const Json& line) {
  if (!line.is_object() || !is_time(line, "time")) return false;
  if (line.contains("dropped")) return line["dropped"].is_number_unsigned();
  if (line.contains("event")) return is_event(line);
  const auto named = [&](const char* name) { return line.contains(name); };
  if (std::none_of(texts.begin(), texts.end(), named) && std::none_of(counts.begin(), counts.end(), named))
    return false;
  const auto samples = line.find("samples");
  return are_texts(line, texts) && are_counts(line, counts) && are_totals(line, "totals") &&
         (samples == line.end() || (samples->is_array() && std::all_of(samples->begin(), samples->end(), is_sample)));
}

std::optional<Json> decision_of(const std::string& text) {
  try {
    files::check_json(text, "it", bounds);
    Json line = Json::parse(text);
    if (is_decision(line)) return line;
  } catch (const files::Malformed&) {  // told by its number
  }
  return std::nullopt;
}

std::FILE* open(const std::string& path) {
  if (path == "-") return stdin;
  std::FILE* const file = std::fopen(path.c_str(), "re");
  struct stat status {};
  if (!file || ::fstat(::fileno(file), &status) != 0)
    throw FileError(fmt::format("cannot read \"{}\": {}", messages::one_line(path), std::strerror(errno)));
  if (!S_ISDIR(status.st_mode)) return file;
  std::fclose(file);
  throw FileError(fmt::format("cannot read \"{}\": expected a file of a decision log, but this is a folder",
                              messages::one_line(path)));
}

}  // namespace

void DecisionFile::Closer::operator()(std::FILE* file) const {
  if (file != stdin) std::fclose(file);
}

DecisionFile::DecisionFile(std::string path) : file_(open(path)) {
  damaged_.file = path == "-" ? "standard input" : std::move(path);
}

DecisionFile::Line DecisionFile::read_line(std::string& line) {
  line.clear();
  size_t length = 0;
  for (int c = ::getc_unlocked(file_.get()); c != EOF; c = ::getc_unlocked(file_.get())) {
    if (c == '\n') return length > longest_line ? Line::too_long : Line::whole;
    if (++length <= longest_line) line += static_cast<char>(c);
  }
  if (std::ferror(file_.get()))
    throw FileError(fmt::format("cannot read \"{}\": {}", messages::one_line(damaged_.file), std::strerror(errno)));
  return length == 0 ? Line::none : length > longest_line ? Line::too_long : Line::whole;
}

std::optional<Json> DecisionFile::read() {
  std::string line;
  for (Line kind = read_line(line); kind != Line::none; kind = read_line(line)) {
    ++line_number_;
    if (kind == Line::whole && line.empty()) continue;
    std::optional<Json> decision = kind == Line::whole ? decision_of(line) : std::nullopt;
    if (decision) return decision;
    ++damaged_.count;
    if (damaged_.first.size() < most_named) damaged_.first.push_back(line_number_);
  }
  return std::nullopt;
}

const std::string& DecisionFile::first_time() {
  if (!std::exchange(looked_ahead_, true)) {
    ahead_ = read();
    if (ahead_) first_time_ = (*ahead_)["time"].get<std::string>();
  }
  return first_time_;
}

std::optional<Json> DecisionFile::next() {
  if (ahead_) return std::exchange(ahead_, std::nullopt);
  return read();
}

}  // namespace triage::cli
