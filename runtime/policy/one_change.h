#pragma once
#include <fmt/format.h>
#include <triage/error.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

namespace triage::policy {

/// One reload, rollback or pin at a time of one thing, which holds `changing`, and `changer`: who has it. A function of the host that a
/// script calls while it is loaded would wait for itself; that throws InputError.
class OneChange {
 public:
  /// For the message: `what` is "policy" or "bundle", `script` whose function it may have been.
  OneChange(std::mutex& changing, std::atomic<std::thread::id>& changer, const char* what, const char* script,
            const std::string& path)
      : changing_(changing), changer_(changer) {
    if (changer.load(std::memory_order_relaxed) == std::this_thread::get_id())
      throw InputError(
          fmt::format("{} '{}' was reloaded, rolled back or pinned from within its own reload, on the "
                      "same thread (by a function of the host that {} calls?)",
                      what, path, script));
    changing.lock();
    changer.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  ~OneChange() {
    changer_.store({}, std::memory_order_relaxed);
    changing_.unlock();
  }
  OneChange(const OneChange&) = delete;
  OneChange& operator=(const OneChange&) = delete;

 private:
  std::mutex& changing_;
  std::atomic<std::thread::id>& changer_;
};

}  // namespace triage::policy
