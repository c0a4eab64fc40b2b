#pragma once
#include "runtime/policy/trials/trial.h"
#include "runtime/policy/versions/version.h"

#include <triage/front_end.h>

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

/// Whether a new version is much slower than the one before it: both answer the same synthetic inputs in turn, and the
/// fastest call of each counts.
namespace triage::policy {

/// A version with its graphs, and its source in an interpreter of its own for inputs that no graph answers: what the
/// version remembers stays as it is.
struct TimedSide {
  const PolicyVersion& version;
  Script& alone;
};

/// The fastest calls with inputs of one kind.
struct CallTimes {
  using Time = std::chrono::nanoseconds;
  static constexpr Time floor = std::chrono::milliseconds(1);
  static constexpr int most_rounds = 100;

  Time before = Time::max(), next = Time::max();
  Time spent{0};  // on all calls
  int rounds = 0;

  void note(Time of_before, Time of_next);
  enum class Verdict : uint8_t { undecided, fast_enough, slow };
  /// On a busy machine most calls of an operator with threads may wait for one of them: a version is slow where none of
  /// a hundred calls is fast, or none of those of a second, two at least.
  Verdict judge(double ratio) const;
};

struct SlowKind {
  Kind kind;
  CallTimes times;
};

struct LatencyGate {
  TimedSide before, next;
  const Params& params;
  const Limits& limits;
  double ratio;
  /// Is told of a kind that could not be timed.
  std::function<void(const Kind&)> on_untimed;

  /// The first kind for which `next` is too slow. Throws LimitError where the reload is cancelled meanwhile.
  std::optional<SlowKind> find_slow(const std::vector<Kind>& kinds) const;
};

}  // namespace triage::policy
