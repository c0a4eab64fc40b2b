#include "runtime/messages/repro_settings.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>

#include "runtime/messages/log.h"
#include "runtime/messages/printable.h"

namespace triage::messages {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

struct Repro {
  std::atomic<bool> on{false};
  std::mutex mutex;  // what follows
  ReproSettings settings;
  std::string program;

  Repro() {
    try {
      settings.after_capture = repro_after_from(variable("TRIAGE_REPRO_AFTER"));
      if (const std::string level = variable("TRIAGE_REPRO_LEVEL"); !level.empty()) {
        int64_t number = 0;
        const auto [end, error] = std::from_chars(level.data(), level.data() + level.size(), number);
        settings.level = repro_level_from(error == std::errc() && end == level.data() + level.size() ? number : 0);
      }
    } catch (const ConfigError& error) {
      settings.after_capture = false;
      LogTo::current().write(LogLevel::warn,
                             fmt::format("TRIAGE_REPRO_AFTER, TRIAGE_REPRO_LEVEL: {}; nothing is written for the "
                                         "minifier",
                                         error.what()));
    }
    if (const std::string folder = variable("TRIAGE_REPRO_DIR"); !folder.empty()) settings.folder = folder;
    on = settings.after_capture;
  }
};

Repro& repro() {  // never destroyed: threads compile until the process ends
  static Repro& instance = *new Repro;
  return instance;
}

}  // namespace

bool repro_after_from(const std::string& word) {
  if (word == "capture") return true;
  if (word.empty()) return false;
  throw ConfigError(fmt::format("the minifier cannot begin after '{}'; expected 'capture'", one_line(word)));
}

int repro_level_from(int64_t level) {
  if (level < 1 || level > 4)
    throw ConfigError(
        "the level of the minifier is 1 (write the graph), 2 (minify it), 3 (try every graph) or 4 "
        "(check its numbers too)");
  return static_cast<int>(level);
}

bool repro_on() noexcept { return repro().on.load(std::memory_order_relaxed); }

ReproSettings repro_settings() {
  const std::lock_guard lock(repro().mutex);
  return repro().settings;
}

void set_repro_settings(ReproSettings settings) {
  const std::lock_guard lock(repro().mutex);
  repro().on = settings.after_capture;
  repro().settings = std::move(settings);
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
