#pragma once
#include <optional>
#include <utility>
#include <vector>

namespace triage {

/// While alive on a thread, graphs that are compiled there know which of their inputs may hold samples. The others,
/// those behind the end of `samples` among them, are params, state and weights. Without one, each input may hold
/// samples.
class CallInputs {
 public:
  explicit CallInputs(std::vector<bool> samples) : before_(std::exchange(current_, std::move(samples))) {}
  ~CallInputs() { current_ = std::move(before_); }
  CallInputs(const CallInputs&) = delete;
  CallInputs& operator=(const CallInputs&) = delete;
  static const std::optional<std::vector<bool>>& current() { return current_; }

 private:
  static inline thread_local std::optional<std::vector<bool>> current_;
  std::optional<std::vector<bool>> before_;
};

}  // namespace triage
