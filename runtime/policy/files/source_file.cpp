#include "runtime/policy/files/source_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <triage/error.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/policy/files/descriptor.h"
#include "runtime/policy/files/not_now.h"

namespace triage::policy {
namespace {

constexpr size_t largest_source = 16u << 20;

std::string message(const std::filesystem::path& path, const std::string& why) {
  return fmt::format("cannot read the policy '{}': {}", path.string(), why);
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& why) {
  throw FileError(message(path, why), {path.string(), 0});
}

[[noreturn]] void refuse(const std::filesystem::path& path, int code) {
  if (is_passing(code)) throw NotNow(message(path, std::strerror(code)), {path.string(), 0});
  refuse(path, std::strerror(code));
}

}  // namespace

std::optional<std::string> read_source(const std::filesystem::path& path) {
  // O_NONBLOCK: a fifo of that name must not hang the program.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    refuse(path, errno);
  }
  const Descriptor file(fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0) refuse(path, errno);
  if (!S_ISREG(info.st_mode)) refuse(path, S_ISDIR(info.st_mode) ? "it is a directory" : "it is not a regular file");
  std::string bytes;
  char chunk[1 << 16];
  for (;;) {
    const ssize_t got = ::read(fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(path, errno);
    if (got == 0) return bytes;
    bytes.append(chunk, static_cast<size_t>(got));
    if (bytes.size() > largest_source) refuse(path, fmt::format("it is larger than {} MB", largest_source >> 20));
  }
}

}  // namespace triage::policy
