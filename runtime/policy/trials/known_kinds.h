#pragma once
#include "runtime/policy/versions/version.h"

#include <triage/kernels.h>

#include <functional>
#include <string>
#include <vector>

/// Kinds of calls that a kernel file was built for, or that a bundle has: what a policy of the same source is captured for when it is
/// loaded.
namespace triage::policy {

/// As a kernel file has it. `policy`: VersionInfo::hash of its source.
KnownCall known_call(const std::string& policy, const Kind& kind);

/// For capture::Compiled: what a policy of this hash is captured for is kept, for bundles.
std::function<void(const Kind&)> noting_calls_of(const std::string& hash, CompilerMode compiler);

/// Of the files that this process loaded, and of bundles in the cache folder where it may be used. A kind that does not fit the policy, or is too large to be made up, is left out.
std::vector<Kind> known_kinds(const PolicyVersion& version);

}  // namespace triage::policy
