#pragma once
#include <ATen/core/Tensor.h>
#include <triage/runtime.h>

#include <vector>

#include "runtime/policy/versions/answer.h"
#include "runtime/policy/versions/version.h"

namespace triage::policy {

/// What one version is asked. A call of a policy may ask several.
struct VersionCall {
  PolicyVersion& version;
  at::ArrayRef<at::Tensor> inputs;
  const std::vector<at::Tensor>& params;  // of all calls; those of `options` come on top
  const RunOptions& options;

  /// Fills `answer` but for `by`. Throws what the script throws, PolicyError for what ATen throws and for outputs that
  /// do not fit their declared types. With a capsule, where somebody wants one.
  void run(Answer& answer) const;
  void run_unrecorded(Answer& answer) const;

 private:
  std::vector<at::Tensor> values(Answer& answer) const;
  bool may_be_taken(const at::Tensor& input) const;
  void take_state(Answer& answer) const;
  void mark_violations(Answer& answer) const;
};

}  // namespace triage::policy
