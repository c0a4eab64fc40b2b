#pragma once
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "runtime/policy/core/policy_core.h"
#include "runtime/policy/files/contents.h"
#include "runtime/policy/versions/version.h"

namespace triage::policy {

/// Versions that go live together: one, of a policy that stands alone; one for each policy of a bundle. All but `since`
/// is fixed once it is live.
struct Release {
  int number = 0;          // of the version, where it is alone; of a bundle 1, 2, ... in the order of going live
  std::string label = {};  // of a bundle: its version, as bundle.json says
  std::string sha256 = {};
  std::chrono::system_clock::time_point since = {};  // when it went live (last); under the mutex of its Releases
  Contents contents = {};  // what a restart makes it of: a source with what it reads, or bundle.json with what it lists
  std::map<std::string, std::shared_ptr<PolicyVersion>> parts = {};  // by the name of the policy in its bundle, or ""

  template <class Holds>
  bool any_part(const Holds& holds) const {
    return std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return holds(*part.second); });
  }
  bool on_trial() const {
    return any_part([](const PolicyVersion& part) { return part.trial.on(); });
  }
  /// A part has failed on trial, or too often in a row.
  bool taken_back() const {
    return any_part([](const PolicyVersion& part) { return part.taken_back.load(); });
  }
  /// A part on trial has not yet answered each kind of inputs in use.
  bool untried() const {
    return any_part([](const PolicyVersion& part) { return part.trial.on() && !part.trial.tried(); });
  }
};

/// Of a policy that stands alone.
std::shared_ptr<Release> release_of(std::shared_ptr<PolicyVersion> version);

using Members = std::map<std::string, std::unique_ptr<PolicyCore>>;  // by the names of parts

/// A release that is not live yet, and the policies that are new with it.
struct Prepared {
  std::string name;  // of the policy or the bundle
  std::shared_ptr<Release> release;
  Members added = {};
};

}  // namespace triage::policy
