#pragma once
// The policies that ship, for tests of all of them.
#include <triage/front_end.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/policy/files/policy_files.h"
#include "tests/paths.h"

namespace triage::test {

/// Every policy below scripts/policies; not the modules in `lib`.
inline std::vector<std::filesystem::path> library() {
  std::vector<std::filesystem::path> files;
  const auto root = std::filesystem::path(source_dir()) / "scripts" / "policies";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root))
    if (entry.path().extension() == ".lua" && entry.path().parent_path().filename() != "lib")
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

/// With what it needs to load its modules.
inline ScriptOptions script_options(const std::filesystem::path& path) {
  ScriptOptions options;
  options.path = path.string();
  options.read_file = policy::files_beside(path);
  return options;
}

}  // namespace triage::test
