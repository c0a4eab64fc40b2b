#pragma once
#include <triage/api.h>

#include <cstddef>
#include <string>
#include <vector>

namespace triage {

/// The time to compile the graphs of a function or policy so far, in seconds of wall time.
struct CompileTimes {
  double capture = 0;  // recorded calls of the script, with the operators they ran, and the optimization of graphs
  double backend = 0;  // until the backend returned the executables; without its background work
};

/// The time of one phase of the compilations of one function.
struct PhaseTime {
  /// `capture`, `joint graph`, `fused loops`, `backend 'NAME'`, or `kernels`: the compiler of a GPU, in the background.
  /// No phase contains another.
  std::string phase;
  std::string function;  ///< name of the function, policy or graph
  size_t count = 0;      ///< how often it ran
  double seconds = 0;    ///< wall time of all together
};

/// What compilations of this process took so far, by phase and function, in the order in which they began. After 10,000
/// functions and phases, those of further functions are added up under the name `...`. Thread-safe. As
/// torch._dynamo.utils.compile_times.
TRIAGE_API std::vector<PhaseTime> compile_times();
/// A table for a person, with the sum of each phase at the end; and lines `phase,function,count,seconds` (RFC 4180).
TRIAGE_API std::string compile_times_text(const std::vector<PhaseTime>& times);
TRIAGE_API std::string compile_times_csv(const std::vector<PhaseTime>& times);

}  // namespace triage
