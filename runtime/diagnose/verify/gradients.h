#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runtime/diagnose/isolation/check.h"

/// Gradients of a policy's inputs.
namespace triage::diagnose {

/// Of the sum of all outputs, in the order of the inputs; undefined where there is none. `why_not`: why there is none
/// at all.
Tensors gradients_of(IsolationSubject& subject, const std::vector<IsolationInput>& inputs, const Tensors& batch,
                     std::string& why_not);

/// The operator whose derivative makes NaN or Inf first.
std::optional<RecordedStep> broke_gradient(IsolationSubject& subject, const std::vector<IsolationInput>& inputs,
                                           const Tensors& batch);

}  // namespace triage::diagnose
