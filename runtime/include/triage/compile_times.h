#pragma once

namespace triage {

/// What it took to make the graphs of a function or policy so far, in seconds of wall time.
struct CompileTimes {
  double capture = 0;  // calls of the script that were recorded, with the operators they ran, and cleaning the graphs
  double backend = 0;  // until the backend gave what runs them; what it goes on with in the background is not in it
};

}  // namespace triage
