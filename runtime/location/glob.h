#pragma once
#include <fnmatch.h>

#include <string>

namespace triage {

/// Does the whole of `path` match the glob pattern? `*` and `?` match dots too, as in patterns of file names.
inline bool matches_glob(const std::string& pattern, const std::string& path) {
  return ::fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
}

}  // namespace triage
