#include "runtime/files/disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <triage/error.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <string_view>

#include "runtime/files/shown_path.h"

namespace triage::files {
namespace fs = std::filesystem;
namespace {

constexpr size_t largest_at_once = 1u << 30;  // Linux reads and writes at most 2 GB a call

/// The file that a write to `path` replaces: links are followed, a dangling one to its target.
fs::path follow_links(fs::path path) {
  for (int hops = 0; hops < 40 && fs::is_symlink(fs::symlink_status(path)); ++hops) {
    fs::path target = fs::read_symlink(path);
    path = target.is_absolute() ? target : path.parent_path() / target;
  }
  return path;
}

std::string temporary_name(const fs::path& target) {
  static std::atomic<uint32_t> counter{std::random_device{}()};
  return (target.parent_path() / fmt::format(".{}.{}-{:08x}.tmp", target.filename().string(), ::getpid(), counter++))
      .string();
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) {
    const char* hint = errno == ENOENT ? "; is the name right, relative to the current folder?" : "";
    throw FileError(fmt::format("cannot read \"{}\": {}{}", shown(path), std::strerror(errno), hint));
  }
  struct stat status {};
  if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd_);
    throw FileError(fmt::format("cannot read \"{}\": expected a file, but it is {}", shown(path),
                                S_ISDIR(status.st_mode) ? "a folder" : "not a regular file"));
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void InputFile::read(uint64_t offset, void* to, size_t count) const {
  char* out = static_cast<char*>(to);
  if (fd_ < 0) {
    if (offset > size_ || count > size_ - offset)
      throw Malformed(fmt::format("the file ends at byte {}, before byte {}", size_, offset + count));
    if (count > 0) std::memcpy(out, bytes_ + offset, count);
    return;
  }
  while (count > 0) {
    ssize_t got = ::pread(fd_, out, std::min(count, largest_at_once), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Malformed(fmt::format("reading fails at byte {}: {}", offset, std::strerror(errno)));
    if (got == 0) throw Malformed(fmt::format("the file ends at byte {}, {} bytes too early", offset, count));
    out += got;
    offset += static_cast<uint64_t>(got);
    count -= static_cast<size_t>(got);
  }
}

std::string InputFile::head(size_t count) const {
  std::string bytes(std::min<uint64_t>(count, size_), '\0');
  read(0, bytes.data(), bytes.size());
  return bytes;
}

std::string read_text(const std::string& path, uint64_t largest) {
  const InputFile file(path);
  if (file.size() > largest)
    throw FileError(
        fmt::format("cannot read \"{}\": it has {} bytes; the limit is {}", shown(path), file.size(), largest));
  std::string bytes(file.size(), '\0');
  try {
    file.read(0, bytes.data(), bytes.size());
  } catch (const Malformed& error) {  // it became shorter
    throw FileError(fmt::format("cannot read \"{}\": {}", path, error.what()));
  }
  return bytes;
}

bool write_all(int fd, const void* data, size_t count) {
  const char* from = static_cast<const char*>(data);
  while (count > 0) {
    const ssize_t done = ::write(fd, from, std::min(count, largest_at_once));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return false;
    from += done;
    count -= static_cast<size_t>(done);
  }
  return true;
}

bool is_ours(const std::string& path, uint32_t kind) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && status.st_uid == ::geteuid() &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 && (status.st_mode & S_IFMT) == kind;
}

OutputFile::OutputFile(const std::string& path, bool own) : path_(path) {
  fs::path target = own ? fs::path(path) : follow_links(path);
  target_ = target.string();
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  folder_ = folder.string();
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw FileError(fmt::format("cannot write \"{}\": the folder \"{}\" does not exist; make it first", path, folder_));
  }
  fs::file_status status = fs::status(target, ignored);
  if (!own && fs::exists(status) && !fs::is_regular_file(status)) {
    throw FileError(fmt::format("cannot write \"{}\": {} has that name", path,
                                fs::is_directory(status) ? "a folder" : "something other than a file"));
  }
  std::string temporary = temporary_name(target);
  fd_ = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, own ? 0600 : 0666);
  if (fd_ < 0) {
    throw FileError(
        fmt::format("cannot write \"{}\": cannot create a file in \"{}\": {}", path, folder_, std::strerror(errno)));
  }
  temporary_ = temporary;
  if (!own && fs::exists(status)) ::fchmod(fd_, static_cast<mode_t>(status.permissions()) & 07777);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      folder_(std::move(other.folder_)),
      temporary_(std::move(other.temporary_)),
      fd_(other.fd_) {
  other.temporary_.clear();
  other.fd_ = -1;
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::fail(const std::string& doing) const {
  int error = errno;
  const char* hint = error == ENOSPC || error == EDQUOT ? "; free some space, or write elsewhere" : "";
  throw FileError(fmt::format("cannot write \"{}\": {} failed: {}{}; the file is unchanged", path_, doing,
                              std::strerror(error), hint));
}

void OutputFile::write(const void* data, size_t count) {
  if (!write_all(fd_, data, count)) fail("writing");
}

void OutputFile::flush() {
  // A rename may reach the disk before the data does: without fsync a power cut could leave an empty file.
  if (::fsync(fd_) != 0) fail("flushing to disk");
}

void OutputFile::commit() {
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("renaming the finished file");
  temporary_.clear();
  // From here on nothing may fail: the file is replaced. What is flushed is the new name itself; where the file system
  // cannot flush a folder, the data is safe all the same.
  const int directory = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  ::fsync(directory);
  ::close(directory);
}

void write_file(const std::string& path, std::string_view bytes) {
  OutputFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

namespace {

/// Whether a line near the start begins as none of Lua does, and lines of Python do.
bool looks_like_python(std::string_view head) {
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find('\n'));
    head.remove_prefix(std::min(line.size() + 1, head.size()));
    const bool imports =
        line.starts_with("import ") || (line.starts_with("from ") && line.find(" import ") != line.npos);
    const bool defines = line.starts_with("def ") || line.starts_with("async def ") || line.starts_with("class ");
    if (imports || defines || (line.starts_with("#!") && line.find("python") != line.npos)) return true;
  }
  return false;
}

/// Whether text begins as an object or array does. `{ run = 1 }` is Lua.
bool looks_like_json(std::string_view text) {
  if (!text.starts_with("{") && !text.starts_with("[")) return false;
  const size_t next = text.find_first_not_of(" \t\r\n", 1);
  return next != text.npos &&
         std::string_view(text[0] == '{' ? "\"}" : "\"[{]-0123456789tfn").find(text[next]) != text.npos;
}

/// Without a byte order mark: every other byte is 0, as in text of ASCII letters.
bool looks_like_utf16(std::string_view head) {
  size_t zeros[2] = {0, 0};
  for (size_t i = 0; i < head.size(); ++i) zeros[i % 2] += head[i] == 0;
  const size_t pairs = head.size() / 2;
  return pairs > 1 && std::min(zeros[0], zeros[1]) == 0 && std::max(zeros[0], zeros[1]) >= pairs - pairs / 8;
}

bool starts_without_case(std::string_view head, std::string_view text) {
  return head.size() >= text.size() && std::equal(text.begin(), text.end(), head.begin(), [](char a, char b) {
           return a == std::tolower(static_cast<unsigned char>(b));
         });
}

}  // namespace

std::string describe_content(const InputFile& file) {
  std::string head = file.head(512);
  auto starts = [&](std::string_view magic) { return head.compare(0, magic.size(), magic) == 0; };
  if (head.empty()) return "an empty file";
  if (starts("\x93NUMPY")) return "a NumPy .npy file";
  if (starts(std::string_view("PK\3\4", 4))) {
    return head.find(".npy") != std::string::npos ? "a NumPy .npz archive" : "a zip archive, as .pt files are";
  }
  if (starts(std::string_view("PK\5\6", 4))) return "an empty zip archive";
  if (starts("\x80")) return "a Python pickle";
  if (starts("\x89HDF")) return "an HDF5 file";
  if (starts("\x1f\x8b")) return "a gzip archive";
  if (starts("\x1bLua")) return "compiled Lua";
  if (starts("\x7f"
             "ELF"))
    return "a program or library";
  if (starts(std::string_view("\xff\xfe\0\0", 4)) || starts(std::string_view("\0\0\xfe\xff", 4))) return "UTF-32 text";
  if (starts("\xff\xfe") || starts("\xfe\xff") || looks_like_utf16(head)) return "UTF-16 text";
  if (head.size() > 9 && head[6] == 0 && head[7] == 0 && head[8] == '{') return "a .safetensors file";
  const std::string_view text_begins =
      std::string_view(head).substr(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  if (looks_like_json(text_begins)) return "JSON text";
  if (starts_without_case(text_begins, "<!doctype html") || starts_without_case(text_begins, "<html"))
    return "an HTML page";
  if (text_begins.starts_with("<")) return "XML text";
  size_t text = 0;
  for (unsigned char c : head) text += (c >= 32 && c != 127) || (c >= '\t' && c <= '\r');
  if (text != head.size()) return "data of an unknown format";
  return looks_like_python(head) ? "a Python script" : "a text file";
}

}  // namespace triage::files
