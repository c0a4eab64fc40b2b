#include "runtime/backends/fused/kernels/build_directory.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "runtime/files/disk.h"

namespace triage::fused {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "triage-making-";

fs::path temporary_folder() {
  std::error_code error;
  fs::path folder = fs::temp_directory_path(error);
  if (error) throw std::runtime_error("there is no temporary folder to compile kernels in (TMPDIR, else /tmp)");
  BuildDirectory::remove_leftovers(folder);
  return folder;
}

}  // namespace

BuildDirectory::BuildDirectory() : BuildDirectory(temporary_folder()) {}

BuildDirectory::BuildDirectory(const fs::path& in) {
  // The system makes the folder or finds that there is one: an id of the process would not do, for processes in two containers
  // with one cache may have the same.
  std::string own = (in / (std::string(prefix) + "XXXXXX")).string();
  if (!::mkdtemp(own.data()))
    throw std::runtime_error(
        fmt::format("cannot make a folder in \"{}\" to compile kernels in: {}", in.string(), std::strerror(errno)));
  folder_ = own;
}

void BuildDirectory::remove_leftovers(const fs::path& in) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  fs::directory_iterator entry(in, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->path().filename().string().rfind(prefix, 0) != 0) continue;
    if (!files::is_ours(entry->path().string(), S_IFDIR)) continue;
    std::error_code unknown;
    const auto written = fs::last_write_time(entry->path(), unknown);
    if (!unknown && written < fs::file_time_type::clock::now() - std::chrono::hours(1))
      leftovers.push_back(entry->path());
  }
  for (const fs::path& path : leftovers) fs::remove_all(path, error);
}

BuildDirectory::~BuildDirectory() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace triage::fused
