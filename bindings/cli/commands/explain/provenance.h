#pragma once
#include "bindings/cli/commands.h"

namespace triage::cli {

/// `triage explain --provenance`: runs a policy, or a TorchScript model, operation by operation, and says which
/// operation produced each NaN and Inf, with `--backward` also those of the gradients. Returns the exit status. Throws
/// UsageError for inputs that do not fit.
int explain_provenance(const ExplainCommand& options);

}  // namespace triage::cli
