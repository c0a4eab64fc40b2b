#pragma once
#include <filesystem>
#include <memory>

#include "runtime/policy/host/runtime_core.h"

namespace triage::policy {

class Releases;

/// The policies of a folder with a bundle.json. `dir` is as the user gave it. Throws Error.
std::shared_ptr<Releases> open_bundle(std::shared_ptr<RuntimeCore> runtime, const std::filesystem::path& dir);

}  // namespace triage::policy
