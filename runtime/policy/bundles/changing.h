#pragma once
#include "runtime/policy/bundles/bundle.h"

#include <fmt/format.h>
#include <triage/error.h>

namespace triage::policy {

/// One reload, rollback or pin at a time, as PolicyCore::Changing.
class BundleCore::Changing {
 public:
  explicit Changing(BundleCore& core) : core_(core) {
    if (core.changer_.load(std::memory_order_relaxed) == std::this_thread::get_id())
      throw InputError(
          fmt::format("bundle '{}' was reloaded, rolled back or pinned from within its own reload, on the "
                      "same thread (by a function of the host that a script calls?)",
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
  BundleCore& core_;
};

/// The short mutexes of all members, in the order of names.
class BundleCore::MembersLock {
 public:
  explicit MembersLock(const Members& members) {
    for (const auto& [name, member] : members) locks_.emplace_back(member->mutex_);
  }

 private:
  std::vector<std::unique_lock<std::mutex>> locks_;
};

}  // namespace triage::policy
