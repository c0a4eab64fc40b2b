#pragma once
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/paths.h"

/// What the tests of the house read.
namespace triage::test {

inline const std::filesystem::path root = source_dir();

inline std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace triage::test
