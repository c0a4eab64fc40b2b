#pragma once
#include <cstddef>
#include <functional>
#include <utility>

namespace triage::lua::rewriter {

/// Counts what parsing and rewriting do, and reports it about every thousand steps: whoever asked for the work may
/// throw there to end it.
class Work {
 public:
  explicit Work(std::function<void(size_t steps)> report) : report_(std::move(report)) {}

  void step(size_t count = 1) {
    steps_ += count;
    if (steps_ >= kInterval) settle();
  }
  /// Reports what was not reported yet.
  void settle() {
    const size_t steps = std::exchange(steps_, 0);
    if (report_ && steps > 0) report_(steps);
  }

 private:
  static constexpr size_t kInterval = 1000;
  std::function<void(size_t)> report_;
  size_t steps_ = 0;
};

}  // namespace triage::lua::rewriter
