#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "runtime/policy/host/runtime_core.h"

namespace triage::policy {

class Releases;

/// A policy that stands alone, of a file. `path` is as the user gave it. Throws Error.
std::shared_ptr<Releases> open_file(std::shared_ptr<RuntimeCore> runtime, const std::filesystem::path& path);
/// ... of a text, which `name` stands for in messages.
std::shared_ptr<Releases> open_text(std::shared_ptr<RuntimeCore> runtime, std::string text, const std::string& name);

}  // namespace triage::policy
