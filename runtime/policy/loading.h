#pragma once
#include <cstdint>
#include <utility>

namespace triage::policy {

/// Says that this thread loads a source or runs its tests: what a script computes answers no call. Functions of the host that
/// have other processes wait for it ask.
class Loading {
 public:
  enum class What : uint8_t { nothing, source, tests };

  explicit Loading(What what) noexcept : before_(std::exchange(now_, what)) {}
  ~Loading() { now_ = before_; }
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

  static What now() noexcept { return now_; }

 private:
  inline static thread_local What now_ = What::nothing;
  What before_;
};

}  // namespace triage::policy
