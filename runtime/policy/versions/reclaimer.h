#pragma once
#include "runtime/policy/versions/epochs.h"

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace triage::policy {

/// The thread that destroys what fell out of use, so that no caller of a policy ever pays for closing an interpreter.
class Reclaimer {
 public:
  Reclaimer();
  /// Waits until everything given to it is destroyed.
  ~Reclaimer();
  Reclaimer(const Reclaimer&) = delete;
  Reclaimer& operator=(const Reclaimer&) = delete;

  /// Destroys `garbage` once nobody who was reading under `epochs` before this call is still reading.
  void retire(std::shared_ptr<Epochs> epochs, std::shared_ptr<void> garbage);
  /// Destroys `garbage` soon. False, and `garbage` untouched, once `close` was called: the caller destroys it then.
  bool discard(std::shared_ptr<void>& garbage);
  /// Refuses `discard` from now on, and waits until everything given so far is destroyed.
  void close();

 private:
  struct Item {
    std::shared_ptr<Epochs> epochs;  // null: nobody reads it
    Grace grace;
    std::shared_ptr<void> garbage;
  };
  void loop();
  std::vector<Item> take_ripe();
  void wait(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::vector<Item> items_;
  bool busy_ = false;  // destroying what was taken out of items_
  bool closed_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace triage::policy
