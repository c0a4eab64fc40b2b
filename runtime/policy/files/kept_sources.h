#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "runtime/policy/files/contents.h"

namespace triage::policy {

/// Sources that were live, one file for each, for whoever asks later what has changed. No restart reads them.
/// Thread-safe.
///
/// The file "repair-05adcc29d2b3c284.lua" is the source with this hash of repair.lua, byte for byte; of a policy that
/// read other files it is `packed`.
class KeptSources {
 public:
  /// Without a folder it keeps nothing.
  explicit KeptSources(const std::filesystem::path& cache_dir);
  struct KeptSourceFile {
    std::string file;     // absolute; empty: it is not kept
    std::string trouble;  // why, where it should be
  };
  /// Of the policy at `path`. The sources of files of one name share `most`: the one that went live longest ago goes.
  KeptSourceFile keep(const std::string& path, const std::string& hash, const Contents& contents) const;

  static constexpr size_t most = 64;

 private:
  void remove_oldest(const std::string& begin, const std::string& end) const;

  std::filesystem::path dir_;
};

/// Where the sources of a cache_dir lie.
std::filesystem::path kept_sources_of(const std::filesystem::path& cache_dir);
/// What `file` keeps; nothing where it is no such file, or has another hash. Throws FileError where it cannot be read.
std::optional<Contents> read_kept_source(const std::filesystem::path& file, const std::string& hash);

}  // namespace triage::policy
