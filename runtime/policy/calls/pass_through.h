#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/policy/versions/version.h"

namespace triage::policy {

/// Answers a call without the policy, which has just failed (call it while that error is being handled): an output
/// named as an input is that input; a flags output says UNKNOWN, at ERROR, for every sample, because nobody has looked
/// at them. Throws PolicyError, with what the policy had thrown in it, where an output is neither.
std::vector<at::Tensor> pass_through(const PolicyVersion& version, at::ArrayRef<at::Tensor> inputs);

}  // namespace triage::policy
