#pragma once

namespace triage {

/// While alive, what is compiled on this thread must serve itself: an Executable that would hand its calls to another backend,
/// since it cannot compile what they need, throws instead (`fail_on_backend_error`). Asked when it is made.
class Strict {
 public:
  explicit Strict(bool strict) : outer_(current_) { current_ = strict; }
  ~Strict() { current_ = outer_; }
  Strict(const Strict&) = delete;
  Strict& operator=(const Strict&) = delete;
  static bool current() noexcept { return current_; }

 private:
  inline static thread_local bool current_ = false;
  bool outer_;
};

}  // namespace triage
