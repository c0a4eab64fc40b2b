#pragma once
#include <triage/backend.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/backends/graph_program.h"

/// Runs graph programs, and says how they fail.
namespace triage::diagnose {

using graph::GraphProgram;
using graph::ProgramCheck;
using graph::ProgramInput;

struct ProgramResults {
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> gradients;  // one for each input that requires grad; undefined where none came
  uint64_t next_random = 0;           // bits that come after those that the call drew
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

/// One call of what a backend made of the program's graph, and its gradients with `program.backward`; random numbers
/// are those of the program's seed, and `results.next_random` is what they go on with. `stage` follows what is done.
ProgramResults call_program(const GraphProgram& program, const Executable& executable,
                            const std::vector<at::Tensor>& inputs, ProgramFailure::Stage& stage);

/// What is right for a program and its inputs: the results of `eager`, and those of float64 (judge.h).
class Judgement {
 public:
  Judgement(const GraphProgram& program, const std::vector<at::Tensor>& inputs);
  const ProgramResults& eager() const { return eager_; }
  const ProgramResults& float64() const { return judge_; }
  /// The first result that is wrong; nothing where all are as good as those of `eager`.
  std::optional<std::string> wrong(const ProgramResults& given) const;

 private:
  static std::optional<std::string> wrong(const std::vector<at::Tensor>& given, const std::vector<at::Tensor>& eager,
                                          const std::vector<at::Tensor>& judge, const char* what);

  ProgramResults eager_, judge_;
};

/// Compiles the graph with `backend` and calls it twice: what a backend prepares in the first call serves later ones.
/// With ProgramCheck::numbers, both results are checked.
ProgramOutcome run_program(const GraphProgram& program, const Backend& backend);

}  // namespace triage::diagnose
