#pragma once
#include <ATen/core/Tensor.h>
#include <triage/runtime.h>

#include "runtime/policy/versions/version.h"

namespace triage::policy {

/// Throws InputError where a host gave other inputs than the signature has, or options that do not fit them.
void check_inputs(const PolicyVersion& version, at::ArrayRef<at::Tensor> inputs, const RunOptions& options);

}  // namespace triage::policy
