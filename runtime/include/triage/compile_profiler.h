#pragma once
#include <triage/api.h>
#include <triage/backend.h>
#include <triage/error.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace triage {

namespace capture {
class CompileObserver;
}

/// Counts graph breaks by reason and recompiles by guard, and says what to change: for a program whose graphs break, or
/// are captured again and again. Give it to RuntimeOptions::profiler, run the program for at least as long as it took
/// to see the trouble, and print report(). As torch._dynamo.utils.CompileProfiler. Thread-safe; copies share their
/// counts.
class TRIAGE_API CompileProfiler {
 public:
  struct Break {
    std::string function;  ///< that was captured
    std::string reason;    ///< "`item` reads a value of a tensor (TB0001)"
    std::string hint;      ///< what to do; may be empty
    Source source;         ///< the line that breaks the graph
    size_t count = 0;      ///< how often it was met while triage captured or followed the script
  };
  struct Recompile {
    std::string function;
    Source source;        ///< where the function begins
    std::string guard;    ///< "tensor 'x' size mismatch at index 0 (read at f.lua:3)"
    std::string example;  ///< the last failure: "tensor 'x' size mismatch at index 0. expected 2, actual 3 ..."
    std::string advice;   ///< what to do
    size_t count = 0;     ///< number of calls for which no graph fitted, and this was why the newest one did not
  };

  CompileProfiler();
  /// For a function that is compiled by the profiler instead of a real backend: `eager`, and the graphs are counted.
  Backend backend() const;
  size_t graphs() const;                      ///< that were compiled, by backend() or for a Runtime
  size_t operations() const;                  ///< in these graphs
  std::vector<Break> breaks() const;          ///< in the order in which they were met first
  std::vector<Recompile> recompiles() const;  ///< likewise
  /// Tables for a person, with advice; nothing is cut off.
  std::string report() const;
  /// For the runtime itself.
  std::shared_ptr<capture::CompileObserver> observer() const;

 private:
  class Counts;
  std::shared_ptr<Counts> counts_;
};

}  // namespace triage
