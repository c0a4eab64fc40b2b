#pragma once
#include <filesystem>
#include <string>

#include "runtime/policy/state/state_store.h"

/// State in a `.pt` file: a dict of `format`, `policy` (its name) and `keys`, a dict of dicts of tensors, which Python
/// reads as well.
namespace triage::policy {

/// Throws FileError.
void write_state(const std::filesystem::path& file, const std::string& policy, const StateOfKeys& keys);
/// Of any names and types. Throws FileError for a file that is none, is damaged, or is of another policy.
StateOfKeys read_state(const std::filesystem::path& file, const std::string& policy);

}  // namespace triage::policy
