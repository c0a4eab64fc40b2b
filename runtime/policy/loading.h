#pragma once
#include <atomic>
#include <cstdint>
#include <utility>

namespace triage::policy {

/// Says that this thread loads a source or runs its tests: what a script computes answers no call. Functions of the
/// host that have other processes wait for it ask.
class Loading {
 public:
  enum class What : uint8_t { nothing, source, tests };

  explicit Loading(What what) noexcept : before_(std::exchange(now_.what, what)) {}
  ~Loading() { now_.what = before_; }
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

  static What now() noexcept { return now_.what; }

  /// While alive on a thread, scripts that run there stop at their next look at their budgets once `cancelled` is set;
  /// null: they do not. A call that a function of the host makes meanwhile is no part of the reload.
  class Cancellable {
   public:
    explicit Cancellable(const std::atomic<bool>* cancelled) noexcept
        : before_(std::exchange(now_.cancelled, cancelled)) {}
    ~Cancellable() { now_.cancelled = before_; }
    Cancellable(const Cancellable&) = delete;
    Cancellable& operator=(const Cancellable&) = delete;

   private:
    const std::atomic<bool>* const before_;
  };
  static bool is_cancellable() noexcept { return now_.cancelled != nullptr; }
  static bool is_cancelled() noexcept { return now_.cancelled && now_.cancelled->load(std::memory_order_relaxed); }

 private:
  struct OfThread {
    What what;
    const std::atomic<bool>* cancelled;
  };
  inline static thread_local constinit OfThread now_{What::nothing, nullptr};
  What before_;
};

}  // namespace triage::policy
