#pragma once
#include <mutex>

namespace triage::messages {

/// A mutex that a forked child finds open, though a thread that does not exist there may have held it: a fork takes all of these first.
/// They may be nested in any order. Whoever holds one must not fork.
class ForkSafeMutex : public std::mutex {
 public:
  ForkSafeMutex() noexcept;
  ~ForkSafeMutex();
  ForkSafeMutex(const ForkSafeMutex&) = delete;
  ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;

 private:
  friend struct ForkSafeMutexes;
  ForkSafeMutex *before_ = nullptr, *after_ = nullptr;  // all of the process form a list
};

}  // namespace triage::messages
