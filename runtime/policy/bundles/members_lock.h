#pragma once
#include "runtime/policy/bundles/bundle.h"

namespace triage::policy {

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
