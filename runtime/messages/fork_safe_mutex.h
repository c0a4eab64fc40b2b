#pragma once
#include <mutex>
#include <new>
#include <shared_mutex>
#include <type_traits>

namespace triage::messages {

/// What a fork takes first, and lets go afterwards: all such locks of the process form a list.
class ForkSafeLock {
 public:
  ForkSafeLock(const ForkSafeLock&) = delete;
  ForkSafeLock& operator=(const ForkSafeLock&) = delete;

 protected:
  using TryToHold = bool (*)(ForkSafeLock& lock);
  using LetGo = void (*)(ForkSafeLock& lock, bool in_child);
  ForkSafeLock(TryToHold try_to_hold, LetGo let_go) noexcept;
  ~ForkSafeLock();

 private:
  friend struct ForkSafeLocks;
  const TryToHold
      try_to_hold_;  // no virtual functions: another thread may fork before this one has made all of the object
  const LetGo let_go_;
  ForkSafeLock *before_ = nullptr, *after_ = nullptr;
};

/// A mutex that a forked child finds open, though a thread that does not exist there may have held it. They may be
/// nested in any order. Whoever holds one must not fork.
template <class Mutex>
class ForkSafe final : public Mutex, ForkSafeLock {
 public:
  ForkSafe() noexcept : ForkSafeLock(&try_to_hold, &let_go) {}

 private:
  static bool try_to_hold(ForkSafeLock& lock) { return static_cast<ForkSafe&>(lock).try_lock(); }
  static void let_go(ForkSafeLock& lock, bool in_child) {
    Mutex& mutex = static_cast<ForkSafe&>(lock);
    // A shared mutex knows who holds it by the number of the thread, which is another one in a child.
    if (in_child && std::is_same_v<Mutex, std::shared_mutex>)
      new (&mutex) Mutex;
    else
      mutex.unlock();
  }
};
using ForkSafeMutex = ForkSafe<std::mutex>;
using ForkSafeSharedMutex = ForkSafe<std::shared_mutex>;

}  // namespace triage::messages
