#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace triage::policy {

/// All bytes of a file, read once; nothing where there is no such file. Throws FileError for one that cannot be read,
/// is not a regular file, or is larger than any script should be; NotNow where that passes.
std::optional<std::string> read_source(const std::filesystem::path& path);

}  // namespace triage::policy
