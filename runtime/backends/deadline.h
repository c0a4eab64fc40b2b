#pragma once
#include <triage/error.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "runtime/operators/call_bounds.h"

namespace triage {

/// The moment at which the call that runs on this thread gives up, for what it cannot be handed to: a function of the
/// host that a script calls, and that calls the runtime; gradients, which autograd computes. All else gets it in its
/// CallContext.
class Deadline {
 public:
  using Moment = std::chrono::steady_clock::time_point;

  /// Sets it until destroyed, where there is one; a call inside a call keeps the nearer of both.
  explicit Deadline(const std::optional<Moment>& moment) : set_(moment.has_value()) {
    if (!set_) return;
    const auto now = nearest(moment);
    outer_ = std::exchange(operators::call_bounds.deadline, now);
  }
  ~Deadline() {
    if (set_) operators::call_bounds.deadline = outer_;
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  static const std::optional<Moment>& current() noexcept { return operators::call_bounds.deadline; }
  /// The nearer of the current one and `moment`, for a call that may be inside another one.
  static std::optional<Moment> nearest(const std::optional<Moment>& moment) noexcept {
    return moment && current() ? std::min(*moment, *current()) : moment ? moment : current();
  }

  /// So much time as Limits has it: nothing for 0, which is no limit, and for more than anybody waits (three years). Of
  /// what is left, ten times as much still fits the clock.
  static std::optional<Moment::duration> span(double seconds) {
    constexpr double longest = 1e8;
    if (!(seconds > 0) || seconds > longest) return std::nullopt;
    return std::chrono::duration_cast<Moment::duration>(std::chrono::duration<double>(seconds));
  }
  /// From now on.
  static std::optional<Moment> in(double seconds) {
    const auto time = span(seconds);
    return time ? std::optional(std::chrono::steady_clock::now() + *time) : std::nullopt;
  }

  /// Whether differences between this moment and others fit the clock.
  static bool is_plain(const Moment& moment) {
    return moment >= Moment() && moment <= Moment(Moment::duration::max() / 2);
  }
  /// Of a moment that is not: long ago, or never.
  static std::optional<Moment> plain(const Moment& moment) {
    return moment < Moment() ? std::optional(Moment()) : std::nullopt;
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
