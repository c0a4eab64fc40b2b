#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace triage::lua {

/// What two ways of running a policy gave for the same inputs.
struct RunOutcome {
  std::vector<at::Tensor> outputs;
  std::vector<bool> flags;            // which outputs are flags
  std::vector<at::Tensor> gradients;  // of the inputs that require grad; undefined where there is none
};

/// Where they differ in number, dtype, shape, device or a bit (one NaN is like another); empty: nowhere. `names` are
/// those of the outputs, as far as they have names. `exact`: else floats may differ as far as a fused loop's may.
std::string difference(const RunOutcome& plain, const RunOutcome& captured, const std::vector<std::string>& names,
                       bool exact = true);

}  // namespace triage::lua
