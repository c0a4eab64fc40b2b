#pragma once
#include <chrono>
#include <string>

#include "runtime/diagnose/minify/minifier.h"

/// Whether a candidate fails as the program that is minified did.
namespace triage::diagnose {

class Oracle {
 public:
  /// Runs the program. Throws InputError where it does not fail.
  Oracle(const GraphProgram& program, const Backend& backend, const MinifierOptions& options);

  /// A candidate for which `eager` fails is none, unless the program is one itself.
  bool fails_the_same(const GraphProgram& candidate);
  /// Hangs are searched for with a shorter limit than `options.child` has, and what is only slow may look like one.
  bool must_confirm() const { return limits_.seconds < options_.child.seconds; }
  /// Whether it fails the same with the full limit; if not, candidates get more time from now on.
  bool confirm(const GraphProgram& candidate);
  const std::string& failure() const { return failure_; }
  /// It fails with an error, and not by a crash, a hang, or too much memory.
  bool harmless() const { return harmless_; }
  size_t candidates() const { return candidates_; }
  bool out_of_time() const;

 private:
  struct Verdict {
    std::string kind;  // equal for failures that are the same; empty: it runs
    std::string text;
    bool eager_fails = false;
    bool reported = true;  // false: the child came to no end
    bool timed_out = false;
  };
  bool runs_with_eager(const GraphProgram& program) const;
  Verdict judge(const GraphProgram& candidate, const ChildLimits& limits);

  const Backend& backend_;
  const MinifierOptions& options_;
  ChildLimits limits_;
  std::chrono::steady_clock::time_point end_;
  std::string kind_, failure_;
  bool eager_fails_ = false, harmless_ = true;
  size_t candidates_ = 0;
};

}  // namespace triage::diagnose
