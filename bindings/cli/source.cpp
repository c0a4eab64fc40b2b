#include <fmt/format.h>
#include <triage/error.h>

#include <filesystem>

#include "bindings/cli/command.h"
#include "runtime/files/disk.h"

namespace triage::cli {

std::string read_source(const std::string& path) {
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind == std::filesystem::file_type::not_found)
    throw FileError(fmt::format("cannot read \"{}\": there is no such file", path));
  if (kind != std::filesystem::file_type::regular)
    throw FileError(fmt::format("cannot read \"{}\": expected a file with a policy, but this is {}", path,
                                kind == std::filesystem::file_type::directory ? "a folder" : "no regular file"));
  return files::read_text(path);
}

}  // namespace triage::cli
