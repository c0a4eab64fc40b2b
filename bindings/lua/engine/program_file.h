#pragma once
#include "bindings/lua/backends/run_graph.h"
#include "bindings/lua/engine/script_state.h"

#include <memory>
#include <string>

namespace triage::lua {

/// The graph program of a script (runtime/backends/graph_program.h), with the state that its backend may live in.
struct ProgramFile {
  std::shared_ptr<ScriptState> state;
  graph::GraphProgram program;  // its preamble: the script's lines before the call
  Backend backend;
};

/// Runs the script up to its first `triage.run_graph`. Throws what the script raises before, and InputError where it
/// calls none.
ProgramFile read_program_file(const std::string& path);

}  // namespace triage::lua
