#pragma once
#include <triage/decisions.h>
#include <triage_c.h>

#include <memory>

namespace triage::c {

/// The decision log of a runtime, which tells `log` that it fails. Throws Misuse, ConfigError, FileError.
std::shared_ptr<DecisionLog> decision_log(const TriageDecisionLogOptions& options, const Log& log);

}  // namespace triage::c
