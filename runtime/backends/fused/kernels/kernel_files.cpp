#include "runtime/backends/fused/kernels/kernel_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

namespace triage::fused {
namespace {

namespace fs = std::filesystem;

constexpr size_t most_files = 512;
constexpr const char* scratch_extension = ".tmp";  // of files in the folder that are not kernels yet

fs::path wanted_folder() {
  const auto from = [](const char* variable) {
    const char* value = std::getenv(variable);
    return fs::path(value ? value : "");
  };
  if (const fs::path own = from("TRIAGE_KERNEL_CACHE"); !own.empty()) return own;
  if (const fs::path cache = from("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "triage" / "kernels";
  if (const fs::path home = from("HOME"); home.is_absolute()) return home / ".cache" / "triage" / "kernels";
  return {};
}

/// Belongs to this user, and nobody else may write to it: what is in it may be loaded.
bool is_ours(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && status.st_uid == ::geteuid() &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode));
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string sum_of(const fs::path& file) { return file.string() + ".sum"; }

std::string unique_name(const std::string& key) {
  static std::atomic<int> count{0};
  return fmt::format("{}.{}.{}{}", key, ::getpid(), count++, scratch_extension);
}

}  // namespace

std::string hash_of(const std::string& bytes) {
  // FNV-1a over two 64-bit lanes with different starts.
  uint64_t a = 0xCBF29CE484222325u, b = 0x84222325CBF29CE4u;
  for (const char c : bytes) {
    a = (a ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    b = (b ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    b ^= a >> 29;
  }
  return fmt::format("{:016x}{:016x}", a, b);
}

KernelFile::~KernelFile() {
  if (!scratch_) return;
  ::unlink(path_.c_str());
  if (fs::path(path_).extension() != scratch_extension) ::rmdir(fs::path(path_).parent_path().c_str());  // made for it
}

KernelFiles::KernelFiles() {
  const fs::path wanted = wanted_folder();
  if (wanted.empty()) return;
  std::error_code error;
  if (fs::create_directories(wanted, error)) ::chmod(wanted.c_str(), S_IRWXU);
  if (error || ::access(wanted.c_str(), W_OK | X_OK) != 0)
    refused_ = fmt::format("\"{}\" cannot be written to", wanted.string());
  else if (!is_ours(wanted))
    refused_ = fmt::format(
        "\"{}\" is another user's, a symbolic link, or one that others may write to, who could then run code here",
        wanted.string());
  else
    folder_ = wanted;
}

std::optional<KernelFile> KernelFiles::find(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  const fs::path file = folder_ / (key + ".so");
  if (!is_ours(file) || !is_ours(sum_of(file))) return std::nullopt;
  if (content(sum_of(file)) != hash_of(content(file))) return std::nullopt;
  return KernelFile(file.string(), false);
}

KernelFile KernelFiles::scratch(const std::string& key) const {
  if (!folder_.empty()) return {(folder_ / unique_name(key)).string(), true};
  std::error_code error;
  std::string own = (fs::temp_directory_path(error) / "triage-kernel-XXXXXX").string();
  if (!::mkdtemp(own.data()))
    throw std::runtime_error("there is no folder for compiled kernels, not even a temporary one");
  return {own + "/" + key + ".so", true};
}

void KernelFiles::keep(const std::string& key, KernelFile made) const {
  if (folder_.empty()) return;
  const fs::path file = folder_ / (key + ".so"), sum = folder_ / unique_name(key);
  ::chmod(made.path().c_str(), S_IRWXU);
  { std::ofstream(sum, std::ios::binary) << hash_of(content(made.path())); }
  ::chmod(sum.c_str(), S_IRUSR | S_IWUSR);
  // The sum goes first: a reader between the two finds a file that does not fit it, and compiles for itself.
  if (::rename(sum.c_str(), sum_of(file).c_str()) != 0 || ::rename(made.path().c_str(), file.c_str()) != 0)
    return remove(key);
  remove_oldest();
}

void KernelFiles::remove(const std::string& key) const {
  std::error_code error;
  fs::remove(folder_ / (key + ".so"), error);
  fs::remove(sum_of(folder_ / (key + ".so")), error);
}

void KernelFiles::remove_oldest() const {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code error;
  const auto forgotten = fs::file_time_type::clock::now() - std::chrono::hours(1);  // by a process that ended early
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().extension() == ".so") files.emplace_back(entry.last_write_time(error), entry.path());
    if (entry.path().extension() == scratch_extension && entry.last_write_time(error) < forgotten)
      fs::remove(entry.path(), error);
  }
  if (files.size() <= most_files) return;
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i + most_files < files.size(); ++i) {
    fs::remove(files[i].second, error);
    fs::remove(sum_of(files[i].second), error);
  }
}

}  // namespace triage::fused
