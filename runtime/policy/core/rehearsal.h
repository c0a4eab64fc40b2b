#pragma once
#include "runtime/backends/deadline.h"
#include "runtime/capture/tensors/synthetic_inputs.h"
#include "runtime/operators/untrusted.h"
#include "runtime/policy/trials/trial.h"
#include "runtime/policy/versions/version.h"

#include <triage/front_end.h>

#include <optional>
#include <string>
#include <vector>

namespace triage::policy {

class PolicyCore;

/// While alive, graphs of `version` that run on this thread, on values that nobody sent, are held to their contracts
/// and end within the budget of a call.
class OnSyntheticValues {
 public:
  OnSyntheticValues(const PolicyVersion& version, const Limits& limits);

 private:
  const operators::Untrusted graphs_;
  const Deadline deadline_;
};

std::vector<at::Tensor> inputs_of(const Kind& kind, capture::SyntheticValues values);
/// "[32, 8], [32]": the sizes of such inputs.
std::string sizes_text(const Kind& kind);

/// A plain run of a script on such inputs; false where it fails, or would call a function of the host. Throws
/// LimitError.
bool run_alone(Script& script, at::ArrayRef<at::Tensor> inputs, const Params& params);

/// What is known of the answers of `live` without asking it.
Trial::TrialBaseline known_of(const PolicyVersion& live);

/// Tries a new source on synthetic inputs of the kinds in use, beside the source that is live, and compares what they
/// give. Both run as plain scripts in interpreters of their own (`before`, `next`), so that neither what the live
/// version remembers nor what the new one will is touched. What is found goes into the trial of the new version. Throws
/// LoadError where the new source is at fault or gives another form, LimitError where it does not end within its
/// budget.
Trial::TrialBaseline rehearse(Script& before, Script& next, const PolicyVersion& live, const std::vector<Kind>& kinds,
                              const Params& params, const Limits& limits);

/// Tries a script that declares the types of its inputs and outputs on inputs made of those types. Throws LoadError
/// where it gives others. What it cannot be tried on tells nothing; where no such inputs can be made, why.
std::optional<std::string> check_declared_outputs(Script& script, const Limits& limits);

/// triage::output_metadata.
std::vector<TensorMetadata> outputs_for(const PolicyCore& policy, const std::vector<TensorMetadata>& inputs);

}  // namespace triage::policy
