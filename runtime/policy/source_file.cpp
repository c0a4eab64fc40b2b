#include "runtime/policy/source_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <triage/error.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "runtime/files/checksum.h"
#include "runtime/files/disk.h"

namespace triage::policy {
namespace {

constexpr size_t largest_source = 16u << 20;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& why) {
  throw FileError(fmt::format("cannot read the policy '{}': {}", path.string(), why), {path.string(), 0});
}

struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

constexpr std::string_view last_line_start = "\n-- triage: last good source, checksum ";

/// Stands behind a source that is kept: it is whole, and that of this file.
std::string last_line(const std::filesystem::path& path, std::string_view bytes) {
  const std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
  return fmt::format("{}{}\n", last_line_start, hash_text(files::checksum(fmt::format("{}\n{}", absolute, bytes))));
}

std::string write_whole(const std::filesystem::path& path, std::string_view bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0) return fmt::format("{}: {}", path.string(), std::strerror(errno));
  Descriptor file{fd};
  if (files::write_all(fd, bytes.data(), bytes.size())) return {};
  return fmt::format("{}: {}", path.string(), std::strerror(errno));
}

}  // namespace

std::string hash_text(uint64_t hash) { return fmt::format("{:016x}", hash); }

std::optional<std::string> read_source(const std::filesystem::path& path) {
  // O_NONBLOCK: a fifo of that name must not hang the program.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    refuse(path, std::strerror(errno));
  }
  Descriptor file{fd};
  struct stat info {};
  if (::fstat(fd, &info) != 0) refuse(path, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) refuse(path, S_ISDIR(info.st_mode) ? "it is a directory" : "it is not a regular file");
  std::string bytes;
  char chunk[1 << 16];
  for (;;) {
    const ssize_t got = ::read(fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(path, std::strerror(errno));
    if (got == 0) return bytes;
    bytes.append(chunk, static_cast<size_t>(got));
    if (bytes.size() > largest_source) refuse(path, fmt::format("it is larger than {} MB", largest_source >> 20));
  }
}

LastGood::LastGood(std::filesystem::path cache_dir) : dir_(cache_dir.empty() ? cache_dir : cache_dir / "last_good") {}

std::filesystem::path LastGood::place_of(const std::filesystem::path& path) const {
  const std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
  return dir_ / fmt::format("{}-{}", hash_text(files::checksum(absolute)), path.filename().string());
}

std::string LastGood::keep(const std::filesystem::path& path, std::string_view bytes) const {
  if (dir_.empty()) return {};
  std::error_code error;
  if (std::filesystem::create_directories(dir_, error)) ::chmod(dir_.c_str(), S_IRWXU);
  if (error) return fmt::format("{}: {}", dir_.string(), error.message());
  if (!files::is_ours(dir_.string(), S_IFDIR))
    return fmt::format("{}: it is another user's, a symbolic link, or one that others may write to", dir_.string());
  static std::atomic<uint64_t> serial{0};
  const std::filesystem::path place = place_of(path);
  const std::filesystem::path draft = fmt::format("{}.{}.{}.tmp", place.string(), ::getpid(), serial++);
  std::string failure = write_whole(draft, std::string(bytes) + last_line(path, bytes));
  if (failure.empty()) {
    std::filesystem::rename(draft, place, error);
    if (error) failure = fmt::format("{}: {}", place.string(), error.message());
  }
  if (!failure.empty()) std::filesystem::remove(draft, error);
  return failure;
}

std::optional<std::string> LastGood::find(const std::filesystem::path& path) const {
  const std::filesystem::path place = place_of(path);
  if (dir_.empty() || !files::is_ours(dir_.string(), S_IFDIR) || !files::is_ours(place.string(), S_IFREG))
    return std::nullopt;
  try {
    std::optional<std::string> kept = read_source(place);
    if (!kept) return std::nullopt;
    const size_t end = kept->rfind(last_line_start);
    const std::string_view bytes = std::string_view(*kept).substr(0, end);
    if (end == std::string::npos || kept->substr(end) != last_line(path, bytes)) return std::nullopt;
    kept->resize(end);
    return kept;
  } catch (const FileError&) {
    return std::nullopt;  // a cache that cannot be read is no cache
  }
}

}  // namespace triage::policy
