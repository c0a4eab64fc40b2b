#pragma once
#include <triage/front_end.h>
#include <triage/runtime.h>

#include <string>
#include <vector>

namespace triage::cli {

/// What the command line gives policies in the place of a host, `--define NAME=FILE`: tensors, or TorchScript modules.
/// Both throw UsageError for what is no NAME=FILE, and FileError.
void define_given(Runtime& runtime, const std::vector<std::string>& texts, c10::Device device);
/// The same for a script that no Runtime loads.
void give(ScriptOptions& script, const std::vector<std::string>& texts, c10::Device device);

}  // namespace triage::cli
