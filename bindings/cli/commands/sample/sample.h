#pragma once
#include "bindings/cli/commands.h"

namespace triage::cli {

/// `triage run --sample`: what each line of the script makes of single samples. 1 where the call fails.
int run_sample(const RunCommand& options);

}  // namespace triage::cli
