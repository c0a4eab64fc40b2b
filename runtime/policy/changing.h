#pragma once
#include "runtime/policy/core.h"
#include "runtime/policy/one_change.h"

namespace triage::policy {

class PolicyCore::Changing : OneChange {
 public:
  explicit Changing(PolicyCore& core) : OneChange(core.changing_, core.changer_, "policy", "its script", core.path_) {}
};

}  // namespace triage::policy
