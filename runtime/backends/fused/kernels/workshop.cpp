#include "runtime/backends/fused/kernels/workshop.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace triage::fused {
namespace {

namespace fs = std::filesystem;

fs::path temporary_folder() {
  std::error_code error;
  fs::path folder = fs::temp_directory_path(error);
  if (error) throw std::runtime_error("there is no temporary folder to compile kernels in (TMPDIR, else /tmp)");
  return folder;
}

}  // namespace

Workshop::Workshop() : Workshop(temporary_folder()) {}

Workshop::Workshop(const fs::path& in) {
  // The system makes the folder or finds that there is one: an id of the process would not do, for processes in two containers
  // with one cache may have the same.
  std::string own = (in / (std::string(prefix) + "XXXXXX")).string();
  if (!::mkdtemp(own.data()))
    throw std::runtime_error(
        fmt::format("cannot make a folder in \"{}\" to compile kernels in: {}", in.string(), std::strerror(errno)));
  folder_ = own;
}

Workshop::~Workshop() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace triage::fused
