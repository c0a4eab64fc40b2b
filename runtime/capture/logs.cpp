#include "runtime/capture/logs.h"

#include <atomic>
#include <cstdlib>
#include <sstream>

namespace triage::capture {
namespace {

struct State {
  std::atomic<bool> graph_breaks, recompiles;
  State() {
    Logs logs;
    const char* wanted = std::getenv("TRIAGE_LOGS");
    std::istringstream words(wanted ? wanted : "");
    for (std::string word; std::getline(words, word, ',');) {
      const bool on = word.empty() || word[0] != '-';
      if (!word.empty() && (word[0] == '-' || word[0] == '+')) word.erase(0, 1);
      if (bool* log = logs.find(word)) *log = on;
    }
    graph_breaks = logs.graph_breaks;
    recompiles = logs.recompiles;
  }
};

State& state() {
  static State state;
  return state;
}

}  // namespace

bool* Logs::find(const std::string& name) noexcept {
  if (name == "graph_breaks") return &graph_breaks;
  return name == "recompiles" ? &recompiles : nullptr;
}

std::string Logs::names() { return "graph_breaks, recompiles"; }

std::string named(const std::string& name, const Source& definition) {
  const std::string place = definition.file + ":" + std::to_string(definition.line);
  return "'" + name + (definition.file.empty() || name == place ? "'" : "' (" + place + ")");
}

std::string recompile_heading(const std::string& name, const Source& definition, Stance stance) {
  const std::string place = definition.file + ":" + std::to_string(definition.line);
  const bool told = definition.file.empty() || name == place;  // what has no name is called by its place
  const std::string function = "function " + name + (told ? "" : " in " + place);
  const std::string reasons = "\n  triggered by the following guard failure(s):";
  if (stance == Stance::default_stance) return "Recompiling " + function + reasons;
  const char* const then = stance == Stance::eager_then_compile ? "; the next call is captured" : "";
  return "Running the script of " + function + " (stance " + stance_name(stance) + then + ")" + reasons;
}

bool reports_recompiles(Stance stance) noexcept {
  return stance != Stance::force_eager && stance != Stance::fail_on_recompile;  // asks for no graph; the error says why
}

Logs get_logs() noexcept { return {state().graph_breaks, state().recompiles}; }

void set_logs(const Logs& logs) noexcept {
  state().graph_breaks = logs.graph_breaks;
  state().recompiles = logs.recompiles;
}

}  // namespace triage::capture
