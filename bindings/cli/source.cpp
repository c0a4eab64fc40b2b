#include <fmt/format.h>
#include <triage/error.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "bindings/cli/command.h"

namespace triage::cli {

std::string read_source(const std::string& path) {
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind == std::filesystem::file_type::not_found)
    throw FileError(fmt::format("cannot read \"{}\": there is no such file", path));
  if (kind != std::filesystem::file_type::regular)
    throw FileError(fmt::format("cannot read \"{}\": expected a file with a policy, but this is {}", path,
                                kind == std::filesystem::file_type::directory ? "a folder" : "no regular file"));
  std::ifstream file(path, std::ios::binary);
  std::string source{std::istreambuf_iterator<char>(file), {}};
  if (file.bad() || !file.is_open())
    throw FileError(fmt::format("cannot read \"{}\": no permission, or a fault of the disk", path));
  return source;
}

}  // namespace triage::cli
