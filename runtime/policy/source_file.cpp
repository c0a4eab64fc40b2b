#include "runtime/policy/source_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <triage/error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "runtime/files/checksum.h"
#include "runtime/files/disk.h"
#include "runtime/messages/assert.h"
#include "runtime/policy/known_sources.h"

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

/// Of the last line of a source that is kept.
constexpr std::string_view label = "\n-- triage: last good source, checksum ";

std::string normal(const std::filesystem::path& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

/// What a source that is kept is checked from: so it is known to be that of this file.
uint64_t checksum_of(const std::filesystem::path& path) { return files::checksum(normal(path) + '\n'); }

}  // namespace

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
  return dir_ / fmt::format("{}-{}", files::checksum_text(files::checksum(normal(path))), path.filename().string());
}

std::string LastGood::keep(const std::filesystem::path& path, std::string_view bytes) const {
  if (dir_.empty()) return {};
  std::error_code error;
  if (std::filesystem::create_directories(dir_, error)) ::chmod(dir_.c_str(), S_IRWXU);
  if (error) return fmt::format("{}: {}", dir_.string(), error.message());
  if (!files::is_ours(dir_.string(), S_IFDIR))
    return fmt::format("{}: it is another user's, a symbolic link, or one that others may write to", dir_.string());
  try {
    files::OutputFile file(place_of(path).string(), /*own=*/true);
    file.write(bytes.data(), bytes.size());
    const std::string line = files::checksum_line(label, files::checksum(bytes, checksum_of(path)));
    file.write(line.data(), line.size());
    file.commit();
    return {};
  } catch (const FileError& failure) {
    return failure.what();
  }
}

std::optional<std::string> LastGood::find(const std::filesystem::path& path) const {
  const std::filesystem::path place = place_of(path);
  if (dir_.empty() || !files::is_ours(dir_.string(), S_IFDIR) || !files::is_ours(place.string(), S_IFREG))
    return std::nullopt;
  try {
    std::optional<std::string> kept = read_source(place);
    if (!kept) return std::nullopt;
    const auto [source, intact] = files::without_checksum(*kept, label, checksum_of(path));
    return intact ? std::optional<std::string>(source) : std::nullopt;
  } catch (const FileError&) {
    return std::nullopt;  // a cache that cannot be read is no cache
  }
}

void KnownSources::note(const std::string& source, bool proven) {
  Known known{source, proven || this->proven(source).value_or(false)};
  forget(source);
  known_.push_back(std::move(known));
  bytes_ += source.size();
  while (known_.size() > 1 && (known_.size() > most || bytes_ > most_bytes)) {
    bytes_ -= known_.front().source.size();
    known_.pop_front();
  }
  TRIAGE_ASSERT(bytes_ == std::accumulate(known_.begin(), known_.end(), size_t{0},
                                          [](size_t sum, const Known& one) { return sum + one.source.size(); }));
}

void KnownSources::forget(std::string_view source) {
  const auto same =
      std::find_if(known_.begin(), known_.end(), [&](const auto& known) { return known.source == source; });
  if (same == known_.end()) return;
  bytes_ -= source.size();
  known_.erase(same);
}

std::optional<bool> KnownSources::proven(std::string_view source) const {
  for (const Known& known : known_)
    if (known.source == source) return known.proven;
  return std::nullopt;
}

}  // namespace triage::policy
