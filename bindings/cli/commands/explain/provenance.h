#pragma once
#include <string>
#include <vector>

#include "bindings/cli/calls/call.h"

namespace triage::cli {

/// `triage explain --provenance`: runs a policy, or a TorchScript model, operation by operation, and says which operation
/// produced each NaN and Inf. `benign`: glob patterns of operators, inputs and locations whose Inf is expected and left out.
/// Returns the exit status. Throws UsageError for inputs that do not fit.
int explain_provenance(const CallOptions& options, const std::vector<std::string>& benign, bool json);

}  // namespace triage::cli
