#pragma once
#include "runtime/policy/bundles/bundle.h"
#include "runtime/policy/one_change.h"

namespace triage::policy {

class BundleCore::Changing : OneChange {
 public:
  explicit Changing(BundleCore& core) : OneChange(core.changing_, core.changer_, "bundle", "a script", core.path_) {}
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
