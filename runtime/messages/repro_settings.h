#pragma once
#include <cstdint>
#include <string>

/// When a graph that fails is written as a program for the minifier. For the process; at first what TRIAGE_REPRO_AFTER,
/// TRIAGE_REPRO_LEVEL and TRIAGE_REPRO_DIR say. Thread-safe.
namespace triage::messages {

struct ReproSettings {
  bool after_capture = false;
  /// 1: a graph that its backend cannot compile is written. 2: and minified. 3: each graph is tried in a process of its own before
  /// its backend gets it, so that crashes, hangs and failures at run time are found too. 4: and its numbers are checked.
  int level = 2;
  std::string folder = "triage_repro";
};

/// One load, for those who only ask whether there is anything to do.
bool repro_on() noexcept;
ReproSettings repro_settings();
void set_repro_settings(ReproSettings settings);

/// "capture", or empty for off. Throws ConfigError.
bool repro_after_from(const std::string& word);
/// Throws ConfigError where there is no such level.
int repro_level_from(int64_t level);

/// The program `triage` that minifies; empty (in a host): what is written says how to start it by hand.
std::string minifier_program();
void set_minifier_program(const std::string& path);

}  // namespace triage::messages
