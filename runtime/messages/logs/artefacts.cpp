#include "runtime/messages/logs/artefacts.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <triage/error.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <utility>

#include "runtime/messages/asked.h"
#include "runtime/messages/debugging/debug_folder.h"
#include "runtime/messages/fork_safe_mutex.h"
#include "runtime/messages/logs/log.h"
#include "runtime/messages/near_words.h"
#include "runtime/messages/printable.h"
#include "runtime/messages/profiling/phase_times.h"

namespace triage::messages {
namespace {

constexpr std::string_view artefact_field = "artefact", body_field = "body", graph_field = "graph";

struct LevelName {
  const char* name;
  LogLevel level;
};
constexpr std::array<LevelName, 4> levels = {
    {{"error", LogLevel::error}, {"warning", LogLevel::warn}, {"info", LogLevel::info}, {"debug", LogLevel::debug}}};

std::vector<std::string> known_words() {
  std::vector<std::string> words;
  for (const ArtefactInfo& info : artefacts()) words.emplace_back(info.name);
  words.emplace_back("all");
  for (const LevelName& level : levels) words.emplace_back(level.name);
  words.emplace_back("help");
  return words;
}

[[noreturn]] void throw_unknown(std::string_view word) {
  std::string names;
  for (const std::string& known : known_words()) names += (names.empty() ? "" : ", ") + known;
  const std::string nearest = did_you_mean(close_words(word, known_words()));
  throw ConfigError(fmt::format("there is no log '{}'{} {}", one_line(word),
                                nearest.empty() ? "; there are:" : nearest + " There are:", names));
}

/// Words of the environment are often written in capitals, as those of other programs are.
std::string in_small_letters(std::string_view word) {
  std::string small(word);
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return small;
}

std::string_view trimmed(std::string_view word) {
  const size_t begin = word.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return word.substr(begin, word.find_last_not_of(" \t") + 1 - begin);
}

template <class Take>
void for_each_word(std::string_view words, const Take& take) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(','), words.size());
    if (const std::string_view word = trimmed(words.substr(0, end)); !word.empty()) take(word);
    words.remove_prefix(std::min(end + 1, words.size()));
  }
}

struct Environment {
  Logs logs;
  std::vector<std::string> unknown;  // why words are
  bool help = false;
};

Environment read_environment() {
  Environment read;
  for_each_word(variable("TRIAGE_LOGS"), [&](std::string_view word) {
    try {
      if (in_small_letters(word) == "help")
        read.help = true;
      else
        read.logs.apply(word);
    } catch (const ConfigError& error) {
      read.unknown.push_back(fmt::format("TRIAGE_LOGS: {}", error.what()));
    }
  });
  return read;
}

void tell(const Environment& read) {
  for (const std::string& unknown : read.unknown) LogTo::current().write(LogLevel::warn, unknown);
  if (read.help) LogTo::current().write(LogLevel::warn, "TRIAGE_LOGS=help", {{body_field, artefacts_help()}});
}

/// Constant-initialized: before the environment was read it holds `unread`, so that a look at it is one load.
constexpr uint32_t unread = 0xFFFFFFFF;
std::atomic<uint32_t> current_bits{unread};

struct DebugFunction {
  ForkSafeMutex mutex;
  std::string patterns = variable("TRIAGE_DEBUG_FUNCTION");
  std::atomic<bool> all = patterns.empty();
};
DebugFunction& debug() {
  static DebugFunction& debug = *new DebugFunction;
  return debug;
}

}  // namespace

const std::vector<ArtefactInfo>& artefacts() {
  static const auto& table = *new std::vector<ArtefactInfo>{
      {"capture", LogLevel::info, "the steps of each compilation, with their begin and end, and what was captured",
       "each operation as it is recorded, with its line of the script"},
      {"graph_breaks", LogLevel::warn, "what breaks a graph, once for each line of a script", "every time"},
      {"recompiles", LogLevel::info, "why no captured graph fits a call", ""},
      {"guards", LogLevel::debug, "what a captured graph depends on, with the line of the script that made it so", ""},
      {"graph", LogLevel::info, "each captured graph: one line an operation, with types and lines of the script", ""},
      {"graph_code", LogLevel::debug, "each captured graph in plain ATen operations", ""},
      {"aot_graphs", LogLevel::debug, "the joint graph of forward and backward computation, and its two halves", ""},
      {"fusion", LogLevel::debug, "the groups that `fused` cuts a graph into: what each reads, writes and computes",
       ""},
      {"output_code", LogLevel::debug, "what fused loops run: the listing of a tape, or the CUDA C++ for a GPU", ""},
      {"kernels", LogLevel::info, "loops that were compiled for a GPU", ""},
      {"reload", LogLevel::info, "versions of policies that go live", "files that are watched or loaded"},
  };
  return table;
}

std::string artefacts_help() {
  std::string text =
      "TRIAGE_LOGS is a list such as \"+capture,graph,-graph_breaks\". `name` turns a log on, `+name` shows more, "
      "`-name`\n"
      "turns it off; later words win. A level turns on all logs down to it.\n\n";
  for (const ArtefactInfo& info : artefacts()) {
    text += fmt::format("  {:<13} {}\n", info.name, info.shows);
    if (*info.more) text += fmt::format("  {:<13} {}\n", fmt::format("+{}", info.name), info.more);
  }
  text += fmt::format("  {:<13} all of these\n", "all");
  for (const LevelName& level : levels) {
    std::string names;
    for (const ArtefactInfo& info : artefacts())
      if (info.level == level.level) names += (names.empty() ? "" : ", ") + std::string(info.name);
    if (level.level == LogLevel::error) names = "errors only";
    if (level.level == LogLevel::warn) names += " (the default)";
    if (level.level == LogLevel::info) names = "also " + names;
    if (level.level == LogLevel::debug) names = "all of these, with what + adds";
    text += fmt::format("  {:<13} {}\n", level.name, names);
  }
  return text +
         "\nTRIAGE_LOG_FILE=FILE writes the log to a file. TRIAGE_DEBUG_FUNCTION=NAME captures, and so logs, only "
         "functions\n"
         "and policies of that name; a pattern such as layer* and a place such as repair.lua:3 are names, too.\n";
}

void Logs::set(Artefact artefact, Detail detail) noexcept {
  bits_ = (bits_ & ~(uint32_t{3} << shift(artefact))) | static_cast<uint32_t>(detail) << shift(artefact);
}

void Logs::set_level(LogLevel level) noexcept {
  for (size_t i = 0; i < artefacts().size(); ++i)
    set(static_cast<Artefact>(i), artefacts()[i].level < level ? Detail::off
                                  : level == LogLevel::debug   ? Detail::more
                                                               : Detail::on);
}

void Logs::apply(std::string_view word) {
  const Detail detail = word.starts_with('+') ? Detail::more : word.starts_with('-') ? Detail::off : Detail::on;
  if (word.starts_with('+') || word.starts_with('-')) word = trimmed(word.substr(1));
  apply(word, detail);
}

void Logs::apply_level(std::string_view given) {
  const std::string name = in_small_letters(given);
  const auto level = std::find_if(levels.begin(), levels.end(), [&](const LevelName& one) { return name == one.name; });
  if (level == levels.end())
    throw ConfigError(fmt::format("there is no level '{}'; there are error, warning, info, debug", one_line(name)));
  set_level(level->level);
}

void Logs::apply(std::string_view given, Detail detail) {
  const std::string word = in_small_letters(given);
  const auto is_word = [&](const LevelName& one) { return word == one.name; };
  if (detail == Detail::on && std::any_of(levels.begin(), levels.end(), is_word)) return apply_level(word);
  bool known = false;
  for (size_t i = 0; i < artefacts().size(); ++i) {
    if (word != "all" && word != artefacts()[i].name) continue;
    set(static_cast<Artefact>(i), detail);
    known = true;
  }
  if (!known) throw_unknown(word);
}

void Logs::apply_list(std::string_view words) {
  for_each_word(words, [&](std::string_view word) { apply(word); });
}

std::string Logs::text() const {
  std::string text;
  const Logs usual;
  for (size_t i = 0; i < artefacts().size(); ++i) {
    const auto artefact = static_cast<Artefact>(i);
    const Detail detail = (*this)[artefact];
    if (detail == usual[artefact]) continue;
    const char* const sign = detail == Detail::more ? "+" : detail == Detail::off ? "-" : "";
    text += fmt::format("{}{}{}", text.empty() ? "" : ",", sign, artefacts()[i].name);
  }
  return text;
}

Logs current_logs() noexcept {
  Logs logs;
  uint32_t bits = current_bits.load(std::memory_order_relaxed);
  if (bits == unread) {
    try {
      const Environment read = read_environment();
      if (current_bits.compare_exchange_strong(bits, read.logs.bits_)) {
        bits = read.logs.bits_;
        tell(read);  // what the log calls may look at the logs, too
      }
    } catch (const std::exception&) {  // no memory for the words
      return logs;
    }
  }
  logs.bits_ = bits;
  return logs;
}

void set_current_logs(Logs logs) noexcept { current_bits.store(logs.bits_, std::memory_order_relaxed); }

bool check_logs_of_environment() {
  const Environment read = read_environment();
  if (!read.unknown.empty()) throw ConfigError(read.unknown.front());
  return read.help;
}

void log_artefact(Artefact artefact, LogLevel level, std::string_view heading, std::string_view body,
                  std::string_view graph) noexcept {
  try {
    std::vector<LogField> fields = {{artefact_field, artefacts()[static_cast<size_t>(artefact)].name}};
    if (!graph.empty()) fields.push_back({graph_field, std::string(graph)});
    if (!body.empty()) fields.push_back({body_field, std::string(body)});
    const bool more = level == LogLevel::debug && artefacts()[static_cast<size_t>(artefact)].level != level;
    if (logs(artefact, more ? Detail::more : Detail::on))
      LogTo::current().write(level, heading, fields);
    else
      write_to_debug_log({level, one_line(heading), fields});
  } catch (const std::exception&) {  // no memory for the record
  }
}

void log_artefact(const Logger& logger, Artefact artefact, LogLevel level, const std::string& text,
                  std::vector<LogField> fields) noexcept {
  try {
    fields.push_back({artefact_field, artefacts()[static_cast<size_t>(artefact)].name});
    if (const size_t end = text.find('\n'); end != std::string::npos)
      fields.push_back({body_field, text.substr(end + 1)});
    logger.write(level, text, fields);
  } catch (const std::exception&) {  // no memory for the record
  }
}

namespace {

std::string_view field_of(const LogRecord& record, std::string_view name) noexcept {
  for (const LogField& field : record.fields)
    if (field.name == name) return field.value;
  return {};
}

}  // namespace

std::string_view artefact_of(const LogRecord& record) noexcept { return field_of(record, artefact_field); }
std::string_view body_of(const LogRecord& record) noexcept { return field_of(record, body_field); }

std::string readable(const LogRecord& record) {
  const std::string_view artefact = artefact_of(record);
  std::string_view heading = record.text;
  if (const std::string rest = one_line("\n" + std::string(body_of(record))); heading.ends_with(rest))
    heading.remove_suffix(rest.size());
  std::string text = artefact.empty() ? std::string(heading) : fmt::format("[{}] {}", artefact, heading);
  for (std::string_view body = body_of(record); !body.empty();) {
    const size_t end = std::min(body.find('\n'), body.size());
    text += "\n    " + one_line(body.substr(0, end));
    body.remove_prefix(std::min(end + 1, body.size()));
  }
  return text;
}

CompilationStep::CompilationStep(int number, std::string phase, std::string function, const std::string& what)
    : phase_(std::move(phase)), function_(std::move(function)), exceptions_(std::uncaught_exceptions()) {
  if (!logs(Artefact::capture) && !debug_folder_on()) return;
  heading_ = fmt::format("Step {}: {}", number, what);
  log_artefact(Artefact::capture, LogLevel::info, heading_ + " begins");
}

CompilationStep::~CompilationStep() {
  add_phase_time(phase_, function_, std::chrono::steady_clock::now() - begin_);
  if (heading_.empty()) return;
  note_debug_step(heading_, begin_);
  if (std::uncaught_exceptions() > exceptions_) return;
  try {
    log_artefact(Artefact::capture, LogLevel::info, heading_ + (outcome_.empty() ? " ends" : " ends: " + outcome_));
  } catch (const std::exception&) {  // no memory for the line
  }
}

namespace {

/// What TRIAGE_DEBUG_FUNCTION was compared with. A name that matches nothing would else look like a program that
/// captures nothing.
class SeenFunctions {
 public:
  void note(const std::string& name, const std::string& place, bool matches) {
    const std::lock_guard lock(mutex_);
    matched_ |= matches;
    if (matches || names_.size() == most) return;
    const std::string text = name == place ? name : fmt::format("{} ({})", name, place);
    if (std::find(names_.begin(), names_.end(), text) == names_.end()) names_.push_back(text);
    if (!std::exchange(asked_, true)) std::atexit([] { of_process().tell(); });
  }

  static SeenFunctions& of_process() {  // never destroyed: it is asked when the process ends
    static SeenFunctions& seen = *new SeenFunctions;
    return seen;
  }

 private:
  static constexpr size_t most = 16;

  void tell() noexcept {
    try {
      const std::lock_guard lock(mutex_);
      if (matched_) return;
      LogTo::current().write(
          LogLevel::warn,
          fmt::format("no function or policy that ran has the name '{}' (TRIAGE_DEBUG_FUNCTION), so none was captured; "
                      "there were: {}{}",
                      debug_function(), fmt::join(names_, ", "), names_.size() == most ? ", ..." : ""));
    } catch (const std::exception&) {  // no memory for the line
    }
  }

  ForkSafeMutex mutex_;
  bool matched_ = false, asked_ = false;
  std::vector<std::string> names_;
};

/// "repair.lua:3" is a name of "policies/repair.lua:3".
bool ends_with_path(const std::string& path, const std::string& end) {
  return path == end || path.ends_with('/' + end);
}

}  // namespace

bool is_debugged(const std::string& name, const std::function<std::string()>& place_of) noexcept {
  bool found = false;
  try {
    if (debug().all.load(std::memory_order_relaxed)) return true;
    const std::string place = place_of();
    for_each_word(debug_function(), [&](std::string_view word) {
      const std::string pattern(word);
      found |= name == pattern || ends_with_path(name, pattern) || ends_with_path(place, pattern) ||
               ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    });
    SeenFunctions::of_process().note(name, place, found);
  } catch (const std::exception&) {  // no memory: nothing is told apart
    return true;
  }
  return found;
}

std::string debug_function() {
  const std::lock_guard lock(debug().mutex);
  return debug().patterns;
}

void set_debug_function(std::string patterns) {
  const std::lock_guard lock(debug().mutex);
  debug().all = patterns.empty();
  debug().patterns = std::move(patterns);
}

}  // namespace triage::messages
