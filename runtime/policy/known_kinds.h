#pragma once
#include "runtime/policy/version.h"

#include <triage/kernels.h>

#include <string>
#include <vector>

/// Kinds of calls that a kernel file was built for: what a policy of the same source is captured for when it is loaded.
namespace triage::policy {

/// As a kernel file has it. `policy`: VersionInfo::hash of its source.
KnownCall known_call(const std::string& policy, const Kind& kind);

/// Of the files that this process loaded. A kind that does not fit the policy, or is too large to be made up, is left out.
std::vector<Kind> known_kinds(const PolicyVersion& version);

}  // namespace triage::policy
