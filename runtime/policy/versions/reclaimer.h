#pragma once
#include "runtime/policy/process.h"
#include "runtime/policy/versions/epochs.h"

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

namespace triage::policy {

/// The thread that destroys what fell out of use, so that no caller of a policy ever pays for closing an interpreter. A
/// forked child has no such thread: nothing is destroyed there, and nobody may destroy the Reclaimer, whose condition
/// variables count a thread that waits.
class Reclaimer {
 public:
  Reclaimer();
  /// Waits until everything given to it is destroyed.
  ~Reclaimer();
  Reclaimer(const Reclaimer&) = delete;
  Reclaimer& operator=(const Reclaimer&) = delete;

  /// Something that is to be destroyed, with the place that it takes: whoever has replaced it can give it away without
  /// failing.
  class Garbage;
  /// `epochs`: those of its readers; null: it has none.
  static Garbage garbage(std::shared_ptr<Epochs> epochs, std::shared_ptr<void> object);
  /// Destroys it once nobody who was reading under its epochs before this call is still reading.
  void retire(Garbage garbage) noexcept;
  /// Destroys `garbage` soon. False, and `garbage` untouched, once `close` was called: the caller destroys it then.
  bool discard(std::shared_ptr<void>& garbage);
  /// Refuses `discard` from now on, and waits until everything given so far is destroyed.
  void close();
  bool is_of_another_process() const noexcept { return process_.is_another(); }

 private:
  struct Item {
    std::shared_ptr<Epochs> epochs;  // null: nobody reads it
    Grace grace;
    std::shared_ptr<void> garbage;
  };
  using Items = std::list<Item>;
  void loop();
  Items take_ripe() noexcept;
  void wait(std::unique_lock<std::mutex>& lock);

  const Process process_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  Items items_;
  uint64_t looks_ = 0;
  bool busy_ = false;  // destroying what was taken out of items_
  bool closed_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last: starts when all else is there
};

class Reclaimer::Garbage {
  friend class Reclaimer;
  Items item_;  // at most one
};

}  // namespace triage::policy
