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
  bool may_be_recorded = true;  // with a capsule, where somebody wants one

  /// Fills `answer` but for `by`. Throws what the script throws, PolicyError for what ATen throws and for outputs that
  /// do not fit their declared types.
  void run(Answer& answer) const;

 private:
  std::vector<at::Tensor> values(Answer& answer) const;
  bool may_be_taken(const at::Tensor& input) const;
  void mark_violations(Answer& answer) const;
};

/// How a host's question is put to another version: nothing is donated, and it gets the params that it can take.
RunOptions as_asked(const PolicyVersion& version, const RunOptions& options);

}  // namespace triage::policy
