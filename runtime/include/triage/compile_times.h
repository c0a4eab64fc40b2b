#pragma once

namespace triage {

/// The time to compile the graphs of a function or policy so far, in seconds of wall time.
struct CompileTimes {
  double capture = 0;  // recorded calls of the script, with the operators they ran, and the optimization of graphs
  double backend = 0;  // until the backend returned the executables; without its background work
};

}  // namespace triage
