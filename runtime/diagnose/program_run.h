#pragma once
#include <triage/backend.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/graph/graph_program.h"

/// Runs graph programs, and says how they fail.
namespace triage::diagnose {

using graph::GraphProgram;
using graph::ProgramCheck;
using graph::ProgramInput;

struct ProgramResults {
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> gradients;  // one for each input that requires grad; undefined where none came
};

struct ProgramFailure {
  enum class Stage : uint8_t { compile, run, backward, numbers };
  Stage stage;
  std::string message;
  /// "cannot compile the graph: MESSAGE"
  std::string text() const;
};

struct ProgramOutcome {
  std::optional<ProgramFailure> failure;
  ProgramResults results;  // where nothing failed
};

std::vector<at::Tensor> make_inputs(const GraphProgram& program);

/// Compiles the graph with `backend` and calls it twice: what a backend prepares in the first call serves later ones. With
/// ProgramCheck::numbers, both results are checked.
ProgramOutcome run_program(const GraphProgram& program, const Backend& backend);

/// How far a result may be from that of float64: so many times the largest difference that `eager` has in this tensor.
inline constexpr double kErrorFactor = 10;

}  // namespace triage::diagnose
