#pragma once

namespace triage {

/// While alive on a thread, the types of the graphs that are compiled there (Value::meta) are those of a run that was recorded. Of
/// others, a graph that was read from a text, say, they are what somebody wrote down: a backend that relies on them has to find
/// them out.
class SeenTypes {
 public:
  SeenTypes() : outer_(current_) { current_ = true; }
  ~SeenTypes() { current_ = outer_; }
  SeenTypes(const SeenTypes&) = delete;
  SeenTypes& operator=(const SeenTypes&) = delete;
  static bool current() noexcept { return current_; }

 private:
  inline static thread_local bool current_ = false;
  bool outer_;
};

}  // namespace triage
