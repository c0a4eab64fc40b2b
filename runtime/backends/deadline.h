#pragma once
#include <triage/error.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "runtime/operators/call_bounds.h"

namespace triage {

/// The moment at which the call that runs on this thread gives up, for what it cannot be handed to: a function of the host that
/// a script calls, and that calls the runtime; gradients, which autograd computes. All else gets it in its CallContext.
class Deadline {
 public:
  using Moment = std::chrono::steady_clock::time_point;

  /// Sets it until destroyed, where there is one; a call inside a call keeps the nearer of both.
  explicit Deadline(const std::optional<Moment>& moment) : set_(moment.has_value()) {
    if (!set_) return;
    outer_ = current();
    operators::call_bounds.deadline = outer_ ? std::min(*outer_, *moment) : *moment;
  }
  ~Deadline() {
    if (set_) operators::call_bounds.deadline = outer_;
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  static const std::optional<Moment>& current() noexcept { return operators::call_bounds.deadline; }

  /// So many seconds from now, as Limits has them: nothing for 0, which is no limit.
  static std::optional<Moment> in(double seconds) {
    if (seconds <= 0) return std::nullopt;
    return std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  }

 private:
  const bool set_;
  std::optional<Moment> outer_;
};

inline bool deadline_passed(const std::optional<Deadline::Moment>& deadline = Deadline::current()) {
  return deadline && std::chrono::steady_clock::now() >= *deadline;
}

/// What a call is told whose time is up; `before`: what did not happen any more.
inline std::string out_of_time(const std::string& before) {
  return "the call's budget of time (its deadline, or the seconds of its limits) ended before " + before +
         "; allow more time, or give the policy less to do";
}

/// Throws LimitError when it has passed.
inline void check_deadline(const std::optional<Deadline::Moment>& deadline = Deadline::current()) {
  if (deadline_passed(deadline)) throw LimitError(out_of_time("its graph was done"));
}

}  // namespace triage
