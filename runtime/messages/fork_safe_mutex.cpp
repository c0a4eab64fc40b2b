#include "runtime/messages/fork_safe_mutex.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace triage::messages {

/// Needs no memory and no order of construction: mutexes are made before main, too.
struct ForkSafeMutexes {
  static inline std::mutex listing;  // what follows
  static inline ForkSafeMutex* newest = nullptr;
  static inline std::atomic<std::thread::id> holder{};  // of all; a child has its id

  /// Holds `listing` and all mutexes afterwards, or nothing. A thread that holds one may wait for another, so none is waited for.
  static bool try_to_hold_all() {
    listing.lock();
    for (ForkSafeMutex* mutex = newest; mutex; mutex = mutex->after_) {
      if (mutex->try_lock()) continue;
      release_until(mutex);
      return false;
    }
    return true;
  }

  static void release_until(const ForkSafeMutex* end) {
    for (ForkSafeMutex* mutex = newest; mutex != end; mutex = mutex->after_) mutex->unlock();
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

  static void after_fork() {
    if (holder.load() != std::this_thread::get_id()) return;
    holder = std::thread::id();
    release_until(nullptr);
  }
};

namespace {

/// Before other handlers, which then run before this one: what the compiler of loops for a GPU holds is taken first, as
/// by its own thread.
[[maybe_unused]] const int registered =
    ::pthread_atfork(ForkSafeMutexes::before_fork, ForkSafeMutexes::after_fork, ForkSafeMutexes::after_fork);

}  // namespace

ForkSafeMutex::ForkSafeMutex() noexcept {
  const std::lock_guard lock(ForkSafeMutexes::listing);
  after_ = ForkSafeMutexes::newest;
  if (after_) after_->before_ = this;
  ForkSafeMutexes::newest = this;
}

ForkSafeMutex::~ForkSafeMutex() {
  const std::lock_guard lock(ForkSafeMutexes::listing);
  if (after_) after_->before_ = before_;
  (before_ ? before_->after_ : ForkSafeMutexes::newest) = after_;
}

}  // namespace triage::messages
