#include "runtime/messages/debugging/repro_settings.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "runtime/messages/asked.h"
#include "runtime/messages/fork_safe_mutex.h"
#include "runtime/messages/logs/log.h"
#include "runtime/messages/printable.h"
#include "runtime/messages/thread_context.h"

namespace triage::messages {
namespace {

/// `read` of the variable's text; its errors say which variable.
template <typename Read>
void read_variable(const char* name, const Read& read) {
  try {
    read(variable(name));
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}={}: {}", name, one_line(variable(name)), error.what()));
  }
}

int level_from(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return repro_level_from(error == std::errc() && end == text.data() + text.size() ? number : 0);
}

ReproSettings settings_of_environment() {
  ReproSettings settings;
  read_variable("TRIAGE_REPRO_AFTER", [&](const std::string& word) { settings.after = repro_after_from(word); });
  read_variable("TRIAGE_REPRO_LEVEL", [&](const std::string& level) {
    if (!level.empty()) settings.level = level_from(level);
  });
  return settings;
}

void warn(const std::string& text) { LogTo::current().write(LogLevel::warn, text); }

struct Repro {
  std::atomic<ReproAfter> after{ReproAfter::nothing};
  ForkSafeMutex mutex;  // what follows
  ReproSettings settings;
  std::string program;
  std::map<std::string, std::string> backend_files;

  Repro() {
    try {
      settings = settings_of_environment();
      if (settings.after == ReproAfter::nothing && !variable("TRIAGE_REPRO_LEVEL").empty())
        warn("TRIAGE_REPRO_LEVEL does nothing without TRIAGE_REPRO_AFTER: set that to capture or aot");
    } catch (const ConfigError& error) {
      warn(fmt::format("{}; nothing is written for the minifier", error.what()));
    }
    if (const std::string folder = variable("TRIAGE_DEBUG_DIR"); !folder.empty()) settings.folder = folder;
    settings.backends = variable("TRIAGE_REPRO_BACKENDS");
    after = settings.after;
  }
};

Repro& repro() {  // never destroyed: threads compile until the process ends
  static Repro& instance = *new Repro;
  return instance;
}

}  // namespace

ReproAfter repro_after_from(const std::string& word) {
  for (const ReproAfter after : {ReproAfter::nothing, ReproAfter::capture, ReproAfter::aot})
    if (word == repro_after_word(after)) return after;
  throw ConfigError(fmt::format("the minifier cannot begin after '{}'; expected 'capture' or 'aot'", one_line(word)));
}

std::string repro_after_word(ReproAfter after) {
  switch (after) {
    case ReproAfter::capture:
      return "capture";
    case ReproAfter::aot:
      return "aot";
    default:
      return "";
  }
}

int repro_level_from(int64_t level) {
  if (level < 1 || level > 4)
    throw ConfigError(
        "the level of the minifier is 1 (write the graph), 2 (minify it), 3 (try every graph) or 4 "
        "(check its numbers too)");
  return static_cast<int>(level);
}

ReproAfter repro_after() noexcept {
  if (context.programs_that_run > 0) return ReproAfter::nothing;
  return asked([] { return repro().after.load(std::memory_order_relaxed); }, ReproAfter::nothing);
}

InRepro::InRepro() noexcept { ++context.programs_that_run; }
InRepro::~InRepro() { --context.programs_that_run; }

void check_repro_of_environment() { settings_of_environment(); }

ReproSettings repro_settings() {
  const std::lock_guard lock(repro().mutex);
  return repro().settings;
}

void set_repro_settings(ReproSettings settings) {
  const std::lock_guard lock(repro().mutex);
  repro().after = settings.after;
  repro().settings = std::move(settings);
}

std::string backend_file(const std::string& backend) {
  const std::lock_guard lock(repro().mutex);
  const auto found = repro().backend_files.find(backend);
  return found == repro().backend_files.end() ? "" : found->second;
}

void note_backend_file(const std::string& backend, const std::string& file) {
  const std::lock_guard lock(repro().mutex);
  repro().backend_files[backend] = file;
}

std::string minifier_program() {
  const std::lock_guard lock(repro().mutex);
  return repro().program;
}

void set_minifier_program(const std::string& path) {
  const std::lock_guard lock(repro().mutex);
  repro().program = path;
}

}  // namespace triage::messages
