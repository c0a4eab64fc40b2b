#pragma once
#include <cstdint>
#include <string>

/// When a graph that fails is written as a program for the minifier. For the process; at first what TRIAGE_REPRO_AFTER,
/// TRIAGE_REPRO_LEVEL, TRIAGE_DEBUG_DIR and TRIAGE_REPRO_BACKENDS say. Thread-safe. What is wrong there is a warning
/// here, and an error of the program `triage` (check_repro_of_environment).
namespace triage::messages {

/// Which graphs: those that are captured, or those that come out of the joint graph of forward and backward computation
/// (`fused` compiles these; of other backends, the graphs that they get).
enum class ReproAfter : uint8_t { nothing, capture, aot };

struct ReproSettings {
  ReproAfter after = ReproAfter::nothing;
  /// 1: a graph that its backend cannot compile is written. 2: and minified. 3: each graph is tried in a process of its
  /// own before its backend gets it, so that crashes, hangs and failures at run time are found too. 4: and its numbers
  /// are checked.
  int level = 2;
  std::string folder = "triage_repro";
  std::string backends;  // a Lua file that registers backends: the programs begin with it
};

/// `settings.after`, with one load, for those who only ask whether there is anything to do.
ReproAfter repro_after() noexcept;
/// While alive, it is `nothing` on this thread: what runs is such a program already.
class InRepro {
 public:
  InRepro() noexcept;
  ~InRepro();
  InRepro(const InRepro&) = delete;
  InRepro& operator=(const InRepro&) = delete;
};
/// Throws ConfigError where TRIAGE_REPRO_AFTER or TRIAGE_REPRO_LEVEL is wrong.
void check_repro_of_environment();
ReproSettings repro_settings();
void set_repro_settings(ReproSettings settings);

/// "capture" or "aot", or empty for off. Throws ConfigError.
ReproAfter repro_after_from(const std::string& word);
std::string repro_after_word(ReproAfter after);
/// Throws ConfigError where there is no such level.
int repro_level_from(int64_t level);

/// The Lua file that registered this backend, where that is not the script that runs; else empty.
std::string backend_file(const std::string& backend);
void note_backend_file(const std::string& backend, const std::string& file);

/// The program `triage` that minifies; empty (in a host): what is written says how to start it by hand.
std::string minifier_program();
void set_minifier_program(const std::string& path);

}  // namespace triage::messages
