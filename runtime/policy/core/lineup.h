#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "runtime/policy/candidates/candidate.h"
#include "runtime/policy/versions/version.h"

namespace triage::policy {

struct CandidateLineup;

/// Who answers the calls of a policy, and with which params: all that one call needs. Immutable, and exchanged as a
/// whole.
struct Lineup {
  std::shared_ptr<PolicyVersion> version;
  std::vector<at::Tensor> params;
  /// For OnError::last_good: the latest earlier version that has run; may be null.
  std::shared_ptr<PolicyVersion> last_good;
  std::vector<at::Tensor> last_good_params;
  /// What answers where `version` fails (trial, failures_to_revert); may be null.
  std::shared_ptr<PolicyVersion> before;
  std::vector<at::Tensor> before_params;
  std::shared_ptr<const CandidateLineup> beside;  // mostly null
  bool has_state = false;                         // one of the versions has
};

/// A candidate beside the live version that it is compared with.
struct CandidateLineup {
  std::shared_ptr<Candidate> candidate;
  std::shared_ptr<Comparison> comparison;
  Lineup lineup;  // the candidate answers, and the live version where it fails
};

}  // namespace triage::policy
