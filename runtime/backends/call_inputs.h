#pragma once
#include <cstddef>
#include <optional>
#include <utility>

namespace triage {

/// While alive on a thread, graphs that are compiled there take their first `count` inputs from a call. Behind these
/// stand params, state and weights, which hold no samples. Without one, each input may hold samples.
class CallInputs {
 public:
  explicit CallInputs(size_t count) : before_(std::exchange(current_, count)) {}
  ~CallInputs() { current_ = before_; }
  CallInputs(const CallInputs&) = delete;
  CallInputs& operator=(const CallInputs&) = delete;
  static std::optional<size_t> current() { return current_; }

 private:
  static inline thread_local std::optional<size_t> current_;
  std::optional<size_t> before_;
};

}  // namespace triage
