#pragma once
#include "runtime/policy/core/lineup.h"
#include "runtime/policy/versions/version_call.h"

namespace triage::policy {

/// Throws FormChanged where the answer `given` has another form than callers got before for such inputs, and the
/// version before it would not give that one either. Where there is none before, sizes are free.
void hold_to_form(const Lineup& asked, const VersionCall& call, const Answer& given);

/// How another version is asked for its answer: nothing is donated, and it gets the params that it can take.
RunOptions as_asked(const PolicyVersion& version, const RunOptions& options);

}  // namespace triage::policy
