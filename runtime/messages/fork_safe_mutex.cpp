#include "runtime/messages/fork_safe_mutex.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace triage::messages {

/// Needs no memory and no order of construction: mutexes are made before main, too.
struct ForkSafeLocks {
  static inline std::mutex listing;  // what follows
  static inline ForkSafeLock* newest = nullptr;
  static inline std::atomic<std::thread::id> holder{};  // of all; a child has its id

  /// Holds `listing` and all mutexes afterwards, or nothing. A thread that holds one may wait for another, so none is
  /// waited for.
  static bool try_to_hold_all() {
    listing.lock();
    for (ForkSafeLock* lock = newest; lock; lock = lock->after_) {
      if (lock->try_to_hold_(*lock)) continue;
      release_until(lock, /*in_child=*/false);
      return false;
    }
    return true;
  }

  static void release_until(const ForkSafeLock* end, bool in_child) {
    for (ForkSafeLock* lock = newest; lock != end; lock = lock->after_) lock->let_go_(*lock, in_child);
    listing.unlock();
  }

  /// A fork comes after ten seconds in any case: somebody may hold one for good, while standard error is blocked.
  static void before_fork() {
    using namespace std::chrono_literals;
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (!try_to_hold_all()) {
      if (std::chrono::steady_clock::now() > end) return;
      std::this_thread::sleep_for(20us);
    }
    holder = std::this_thread::get_id();
  }

  static void after_fork(bool in_child) {
    if (holder.load() != std::this_thread::get_id()) return;
    holder = std::thread::id();
    release_until(nullptr, in_child);
  }
  static void in_parent() { after_fork(/*in_child=*/false); }
  static void in_child() { after_fork(/*in_child=*/true); }
};

namespace {

/// Before other handlers, which then run before this one: what the compiler of loops for a GPU holds is taken first, as
/// by its own thread.
[[maybe_unused]] const int registered =
    ::pthread_atfork(ForkSafeLocks::before_fork, ForkSafeLocks::in_parent, ForkSafeLocks::in_child);

}  // namespace

ForkSafeLock::ForkSafeLock(TryToHold try_to_hold, LetGo let_go) noexcept : try_to_hold_(try_to_hold), let_go_(let_go) {
  const std::lock_guard lock(ForkSafeLocks::listing);
  after_ = ForkSafeLocks::newest;
  if (after_) after_->before_ = this;
  ForkSafeLocks::newest = this;
}

ForkSafeLock::~ForkSafeLock() {
  const std::lock_guard lock(ForkSafeLocks::listing);
  if (after_) after_->before_ = before_;
  (before_ ? before_->after_ : ForkSafeLocks::newest) = after_;
}

}  // namespace triage::messages
