#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace triage::policy {

/// All bytes of a file, read once; nothing where there is no such file. Throws FileError for one that cannot be read,
/// is not a regular file, or is larger than any script should be.
std::optional<std::string> read_source(const std::filesystem::path& path);

/// Keeps the last bytes that went live for each policy file, so that a restart with a broken file finds a policy. They are
/// trusted as kernels are: folder and file are this user's, nobody else may write to them, and the file is as it was written.
/// Without a folder it keeps nothing.
class LastGood {
 public:
  explicit LastGood(std::filesystem::path cache_dir);
  /// Replaces what is kept for `path`, all or nothing. Returns why it could not be done; empty: done.
  std::string keep(const std::filesystem::path& path, std::string_view bytes) const;
  std::optional<std::string> find(const std::filesystem::path& path) const;

 private:
  std::filesystem::path place_of(const std::filesystem::path& path) const;
  std::filesystem::path dir_;
};

}  // namespace triage::policy
