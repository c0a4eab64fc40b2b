#pragma once
#include <triage/error.h>

#include "runtime/capture/waiting.h"

namespace triage::policy {

/// While it lives, this thread alone makes changes of a kind, such as reloads of a policy. A function of the host that
/// a script calls meanwhile would wait for itself, or for a thread that waits for this one: that throws InputError.
class OneAtATime {
 public:
  /// `name()` is what others wait for: "the reload of policy 'repair'"; `within()` tells a thread that holds `mutex`
  /// already.
  template <class Name, class Within>
  OneAtATime(capture::OwnedMutex& mutex, const Name& name, const Within& within) : mutex_(mutex) {
    if (mutex.is_held_here()) throw InputError(within());
    try {
      mutex.lock(std::nullopt, name);
    } catch (const PolicyError& error) {
      throw InputError(error.what());
    }
  }
  ~OneAtATime() { mutex_.unlock(); }
  OneAtATime(const OneAtATime&) = delete;
  OneAtATime& operator=(const OneAtATime&) = delete;

 private:
  capture::OwnedMutex& mutex_;
};

}  // namespace triage::policy
