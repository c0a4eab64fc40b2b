#pragma once
#include "runtime/policy/core.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <thread>

namespace triage::policy {

/// One reload, rollback or pin at a time. A function of the host that a script calls while it is loaded would wait for itself.
class PolicyCore::Changing {
 public:
  explicit Changing(PolicyCore& core) : core_(core) {
    if (core.changer_.load(std::memory_order_relaxed) == std::this_thread::get_id())
      throw InputError(
          fmt::format("policy '{}' was reloaded, rolled back or pinned from within its own reload, on the "
                      "same thread (by a function of the host that its script calls?)",
                      core.path_));
    core.changing_.lock();
    core.changer_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  ~Changing() {
    core_.changer_.store({}, std::memory_order_relaxed);
    core_.changing_.unlock();
  }
  Changing(const Changing&) = delete;
  Changing& operator=(const Changing&) = delete;

 private:
  PolicyCore& core_;
};

}  // namespace triage::policy
