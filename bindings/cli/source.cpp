#include <fmt/format.h>
#include <triage/error.h>

#include <fstream>
#include <iterator>

#include "bindings/cli/command.h"

namespace triage::cli {

std::string read_source(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string source{std::istreambuf_iterator<char>(file), {}};
  // Opening a folder succeeds, reading it does not.
  if (file.bad() || !file.is_open()) throw FileError(fmt::format("cannot read \"{}\": there is no such file", path));
  return source;
}

}  // namespace triage::cli
