#pragma once
#include <ATen/core/Tensor.h>
#include <triage/params.h>

namespace triage::policy {

/// A param as its script gets it, as a host sets it.
ParamValue as_set(const at::Tensor& param);

}  // namespace triage::policy
