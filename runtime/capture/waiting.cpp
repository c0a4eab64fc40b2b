#include "runtime/capture/waiting.h"

#include <fmt/format.h>
#include <triage/error.h>
#include <unistd.h>

#include <map>
#include <utility>

#include "runtime/messages/fork_safe_mutex.h"

// GCC 12's thread sanitizer does not see that a mutex was locked before a moment of the steady clock.
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define TRIAGE_TSAN_ACQUIRE(mutex) __tsan_acquire(mutex)
#define TRIAGE_TSAN_RELEASE(mutex) __tsan_release(mutex)
#else
#define TRIAGE_TSAN_ACQUIRE(mutex)
#define TRIAGE_TSAN_RELEASE(mutex)
#endif

namespace triage::capture {
namespace {

struct Wait {
  const HeldResource* wanted;
  std::string name;
};

/// The graph of waits: an edge leads from a waiting thread to the holder of what it wants. Whoever closes a cycle sees
/// all of it: each other thread in it noted what it holds before it began to wait.
struct Waits {
  messages::ForkSafeMutex mutex;  // what follows
  std::map<std::thread::id, Wait> by_thread;
  pid_t process = ::getpid();

  /// The waits of the parent's threads are none of a forked child.
  void forget_parent() {
    if (const pid_t now = ::getpid(); now != std::exchange(process, now)) by_thread.clear();
  }

  /// What the holder of `wanted` waits for, what the holder of that waits for, and so on, if that leads to this thread.
  std::string path_to_this_thread(const HeldResource& wanted) const {
    std::string path;
    const HeldResource* next = &wanted;
    for (size_t steps = 0; steps <= by_thread.size(); ++steps) {
      const std::thread::id holder = next->holder();
      if (holder == std::this_thread::get_id()) return path;
      const auto wait = by_thread.find(holder);
      if (wait == by_thread.end()) break;
      path += ", whose caller waits for " + wait->second.name;
      next = wait->second.wanted;
    }
    return {};
  }
};

Waits& waits() {
  static auto& all = *new Waits;  // threads may wait while the process exits
  return all;
}

}  // namespace

Waiting::Waiting(const HeldResource& wanted, std::string name) {
  Waits& all = waits();
  const std::lock_guard lock(all.mutex);
  all.forget_parent();
  if (const std::string path = all.path_to_this_thread(wanted); !path.empty())
    throw PolicyError(fmt::format(
        "calls on several threads would wait for each other for ever: this one asks for {}{}, which this one has. Let "
        "policies call each other, by functions of the host, in one order only; or load a source twice",
        name, path));
  all.by_thread.insert_or_assign(std::this_thread::get_id(), Wait{&wanted, std::move(name)});
}

Waiting::~Waiting() {
  Waits& all = waits();
  const std::lock_guard lock(all.mutex);
  all.by_thread.erase(std::this_thread::get_id());
}

bool OwnedMutex::wait(const Deadline& deadline, std::string name) {
  const Waiting waiting(*this, std::move(name));
  if (deadline) return mutex_.try_lock_until(*deadline);
  mutex_.lock();
  return true;
}

void OwnedMutex::note_locked() noexcept {
  holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  TRIAGE_TSAN_ACQUIRE(&mutex_);
}

void OwnedMutex::unlock() noexcept {
  holder_.store({}, std::memory_order_relaxed);
  TRIAGE_TSAN_RELEASE(&mutex_);
  mutex_.unlock();
}

}  // namespace triage::capture
