#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "runtime/diagnose/isolation/check.h"

namespace triage::diagnose {

/// A batch to begin with, before one more sample is made bad.
struct StartBatch {
  std::string note;  // how it differs from the batch given: ", bad samples made good"; empty: it does not
  std::vector<at::Tensor> tensors;
};
inline constexpr const char* made_good = ", bad samples made good";
/// Two of them. Without bad samples, which could hide what one more does; and with some, as it is given or made so,
/// because a policy may give a bad sample what others have.
std::vector<StartBatch> start_batches(const std::vector<IsolationInput>& inputs);

}  // namespace triage::diagnose
