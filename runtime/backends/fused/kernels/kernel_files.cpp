#include "runtime/backends/fused/kernels/kernel_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "runtime/backends/fused/kernels/checksum_trailer.h"
#include "runtime/files/disk.h"

namespace triage::fused {
namespace {

namespace fs = std::filesystem;

constexpr size_t most_files = 512;
constexpr uintmax_t most_bytes = 128u << 20;
constexpr size_t room = 1u << 20;  // more than a kernel takes
constexpr std::string_view mark = "triage cached kernel ";

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// False where not all of it could be written; errno then says why.
bool write(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  return !file.fail();
}

std::string not_written(const fs::path& folder) {
  return fmt::format("\"{}\" cannot be written to: {}", folder.string(), std::strerror(errno));
}

/// A name that `path_of` gives: what else lies in the folder is not ours to remove.
bool is_kernel_name(const std::string& name) {
  constexpr std::string_view extension = ".so";
  constexpr size_t digits = 32;
  return name.size() == digits + extension.size() && name.substr(digits) == extension &&
         name.find_first_not_of("0123456789abcdef") == digits;
}

}  // namespace

fs::path KernelFiles::wanted_folder() {
  const auto from = [](const char* variable) {
    const char* value = std::getenv(variable);
    return fs::path(value ? value : "");
  };
  if (const fs::path own = from("TRIAGE_KERNEL_CACHE"); !own.empty()) return own;
  if (const fs::path cache = from("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "triage" / "kernels";
  if (const fs::path home = from("HOME"); home.is_absolute()) return home / ".cache" / "triage" / "kernels";
  return {};
}

KernelFiles::KernelFiles() {
  const fs::path wanted = wanted_folder();
  if (wanted.empty()) return;
  std::error_code error;
  if (fs::create_directories(wanted, error)) ::chmod(wanted.c_str(), S_IRWXU);
  if (error || ::access(wanted.c_str(), W_OK | X_OK) != 0)
    refused_ = fmt::format("\"{}\" cannot be written to", wanted.string());
  else if (!files::is_ours(wanted, S_IFDIR))
    refused_ = fmt::format(
        "\"{}\" is another user's, a symbolic link, or one that others may write to, who could then run code here",
        wanted.string());
  else
    folder_ = wanted;
  if (!folder_.empty()) BuildDirectory::remove_leftovers(folder_);
}

fs::path KernelFiles::path_of(const std::string& text) const { return folder_ / (hash_of(text) + ".so"); }

std::optional<std::string> KernelFiles::find(const std::string& text) const {
  if (folder_.empty()) return std::nullopt;
  const fs::path file = path_of(text);
  std::error_code error;
  if (!files::is_ours(file, S_IFREG) || fs::file_size(file, error) > most_bytes) return std::nullopt;
  const std::string bytes = content(file);
  const Checked checked = check_trailer(bytes, mark);
  if (checked.state != Checked::State::whole || checked.text != text) return std::nullopt;
  ::utimensat(AT_FDCWD, file.c_str(), nullptr, 0);
  return file.string();
}

std::unique_ptr<BuildDirectory> KernelFiles::build_directory() {
  if (folder_.empty()) return nullptr;
  try {
    return std::make_unique<BuildDirectory>(folder_);
  } catch (const std::runtime_error& error) {
    refused_ = error.what();
    return nullptr;
  }
}

bool KernelFiles::has_room(const BuildDirectory& build_directory) {
  const std::string probe = build_directory / "room";
  const bool has = write(probe, std::string(room, ' '));
  if (!has) refused_ = not_written(folder_);
  ::unlink(probe.c_str());
  return has;
}

void KernelFiles::keep(const std::string& text, const std::string& shared_object,
                       const BuildDirectory& build_directory) {
  const std::string sealed = build_directory / "sealed";
  if (!write(sealed, with_trailer(content(shared_object), text, mark))) {
    refused_ = not_written(folder_);
    return;
  }
  ::chmod(sealed.c_str(), S_IRUSR | S_IWUSR);
  const auto put = [&] { return ::rename(sealed.c_str(), path_of(text).c_str()) == 0; };
  if (!put()) {
    std::error_code ignored;
    fs::remove_all(path_of(text), ignored);  // a folder, say, which nothing is renamed to
    if (!put()) {
      refused_ = fmt::format("\"{}\" cannot be replaced: {}", path_of(text).string(), std::strerror(errno));
      return;
    }
  }
  remove_least_used();
}

void KernelFiles::refuse_unloadable(const std::string& reason) {
  refused_ = fmt::format("what is compiled in \"{}\" cannot be loaded ({}); does it allow programs to be run?",
                         folder_.string(), reason);
}

void KernelFiles::remove_least_used() const {
  struct Kept {
    fs::file_time_type used;
    uintmax_t bytes;
    fs::path path;
  };
  std::vector<Kept> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (!is_kernel_name(entry.path().filename().string())) continue;
    if (entry.symlink_status(error).type() != fs::file_type::regular) continue;
    const auto used = entry.last_write_time(error);
    const uintmax_t bytes = error ? 0 : entry.file_size(error);
    if (!error) files.push_back({used, bytes, entry.path()});
  }
  std::sort(files.begin(), files.end(), [](const Kept& a, const Kept& b) { return a.used > b.used; });
  uintmax_t bytes = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    bytes += files[i].bytes;
    if (i >= most_files || bytes > most_bytes) fs::remove(files[i].path, error);
  }
}

}  // namespace triage::fused
