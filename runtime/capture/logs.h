#pragma once
#include <triage/compiler_config.h>
#include <triage/error.h>

#include <string>

namespace triage::capture {

/// What capture says besides warnings: TRIAGE_LOGS="recompiles,-graph_breaks" in the environment, or `triage.set_logs`.
struct Logs {
  bool graph_breaks = true;  // each in full, the first time it is met
  bool recompiles = false;   // why no graph that there is fits a call

  /// Null where there is none of that name.
  bool* find(const std::string& name) noexcept;
  static std::string names();
};

/// "'repair' (repair.lua:3)": a function as warnings name it, with the line where it begins; without where that is its name.
std::string named(const std::string& name, const Source& definition);

/// How the report of a call begins that no graph fits; its reasons follow, a line each. What then happens, the stance says.
std::string recompile_heading(const std::string& name, const Source& definition, Stance stance);
/// Is there anything to report under it?
bool reports_recompiles(Stance stance) noexcept;

/// For the process. Thread-safe. What the environment asks for and nobody knows is left out.
Logs get_logs() noexcept;
void set_logs(const Logs& logs) noexcept;

}  // namespace triage::capture
