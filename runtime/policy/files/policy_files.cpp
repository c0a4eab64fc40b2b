#include "runtime/policy/files/policy_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <triage/error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/files/checksum.h"
#include "runtime/files/disk.h"
#include "runtime/messages/printable.h"
#include "runtime/policy/files/not_now.h"
#include "runtime/policy/loading.h"

namespace triage::policy {
namespace {

namespace fs = std::filesystem;

constexpr size_t most_files = 256, longest_name = 1024;
constexpr uint64_t largest_file = 64u << 20, most_bytes = 256u << 20;  // of one file, of all that a version reads
constexpr int most_links = 40;

/// Closes the file descriptor; -1 is none.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::deque<std::string> parts_of(const std::string& path) {
  std::deque<std::string> parts;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// Why something cannot be read.
struct Trouble {
  std::string why;  // empty: it can be
  bool passing = false;

  static Trouble of(int code) {
    return {code == ENOENT || code == ENOTDIR ? "there is no such file" : std::strerror(code), is_passing(code)};
  }
  FileContent content(uint64_t largest) const {
    FileContent content = FileContent::unread(why, largest);
    content.passing = passing;
    return content;
  }
};

const char* why_not_regular(const struct stat& info) {
  return S_ISDIR(info.st_mode) ? "it is a directory" : "it is not a regular file";
}

/// The way from a folder to a file below it, one folder after the other. Each is opened from the one before it, and
/// none through a link: what is renamed or replaced meanwhile cannot lead out.
class FolderWalk {
 public:
  FolderWalk(const fs::path& folder, const std::string& name) : rest_(parts_of(name)) {
    const int root = ::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
      fail(errno);
    else
      enter(Descriptor(root), folder);
    while (trouble_.why.empty() && !arrived_) step();
  }

  /// Opens what is there, which is no link; -1, with `trouble`, where that cannot be done.
  int open_file() {
    if (!trouble_.why.empty()) return -1;
    const int fd = ::openat(folders_.back().get(), last_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) fail(errno);
    return fd;
  }

  const Trouble& trouble() const { return trouble_; }
  /// Every folder that was looked into, and what lies at the end.
  std::vector<fs::path> seen() const {
    std::vector<fs::path> all = seen_;
    if (arrived_) all.push_back(paths_.back() / last_);
    return all;
  }

 private:
  void fail(int code) { trouble_ = Trouble::of(code); }
  void fail(const char* why) { trouble_ = {why}; }

  void enter(Descriptor folder, fs::path path) {
    folders_.push_back(std::move(folder));
    seen_.push_back(path);
    paths_.push_back(std::move(path));
  }

  void step() {
    if (rest_.empty()) return fail("it is a directory");
    std::string part = std::move(rest_.front());
    rest_.pop_front();
    if (part.empty() || part == ".") return;
    if (part == "..") return leave();
    struct stat info {};
    if (::fstatat(folders_.back().get(), part.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
      fail(errno);
    else if (S_ISLNK(info.st_mode))
      follow(part);
    else if (!rest_.empty())
      go_down(part);
    else
      arrive(part, info);
  }

  void leave() {
    if (folders_.size() == 1) return fail("a symbolic link on the way to it leads out of the folder of the policy");
    folders_.pop_back();
    paths_.pop_back();
  }

  void follow(const std::string& link) {
    char target[PATH_MAX];
    const ssize_t size = ::readlinkat(folders_.back().get(), link.c_str(), target, sizeof target);
    if (size < 0) return fail(errno);
    const std::string path(target, static_cast<size_t>(size));
    if (path.starts_with('/'))
      return fail(
          "a symbolic link on the way to it is absolute; links inside the folder of the policy must be relative");
    if (++links_ > most_links) return fail(ELOOP);
    const std::deque<std::string> parts = parts_of(path);
    rest_.insert(rest_.begin(), parts.begin(), parts.end());
  }

  void go_down(const std::string& folder) {
    const int fd = ::openat(folders_.back().get(), folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return fail(errno);
    enter(Descriptor(fd), paths_.back() / folder);
  }

  void arrive(const std::string& file, const struct stat& info) {
    if (!S_ISREG(info.st_mode)) fail(why_not_regular(info));
    last_ = file;
    arrived_ = true;
  }

  std::deque<std::string> rest_;
  std::vector<Descriptor> folders_;
  std::vector<fs::path> paths_;  // of folders_
  std::vector<fs::path> seen_;   // every folder that was looked into
  std::string last_;
  Trouble trouble_;
  int links_ = 0;
  bool arrived_ = false;
};

/// All bytes of what has just been opened, or why not.
FileContent read_whole(const Descriptor& file, uint64_t largest) {
  const auto failed = [&](int code) { return Trouble::of(code).content(largest); };
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) return failed(errno);
  if (!S_ISREG(info.st_mode)) return FileContent::unread(why_not_regular(info), largest);
  const auto too_large = [&] {
    return FileContent::unread(fmt::format("it is larger than {} bytes", largest), largest);
  };
  if (static_cast<uint64_t>(info.st_size) > largest) return too_large();
  std::string bytes;
  bytes.reserve(static_cast<size_t>(info.st_size));
  char chunk[1 << 16];
  for (;;) {
    const ssize_t got = ::read(file.get(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(errno);
    if (got == 0) break;
    bytes.append(chunk, static_cast<size_t>(got));
    if (bytes.size() > largest) return too_large();
  }
  FileContent content;
  content.bytes = std::make_shared<const std::string>(std::move(bytes));
  content.largest = largest;
  return content;
}

fs::path folder_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

}  // namespace

fs::path plain_absolute(const fs::path& folder) {
  fs::path normal = fs::absolute(folder).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

void verify_file(const Verify& verify, const fs::path& path, std::string_view bytes) {
  if (!verify) return;
  std::string why;
  try {
    const Loading::Cancellable no_reload(nullptr);
    return verify(path, bytes);
  } catch (const std::exception& error) {
    why = error.what();
  } catch (...) {
    why = "it threw something that is no std::exception";
  }
  throw FileError(fmt::format("the host refuses '{}' (RuntimeOptions::verify): {}", path.string(), why),
                  {path.string(), 0});
}

void check_name(const std::string& name) {
  const auto refuse = [&](const char* got) {
    throw FileError(
        fmt::format("cannot read '{}': expected the path of a file inside the folder of the policy, such as 'table.pt' "
                    "or 'tables/limits.npy', got {}",
                    messages::one_line(name.substr(0, longest_name)), got));
  };
  if (name.empty()) refuse("an empty one");
  if (name.size() > longest_name) refuse("one of more than 1024 bytes");
  if (std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }))
    refuse("one with a control character");
  if (name.front() == '/') refuse("an absolute path");
  for (const std::string& part : parts_of(name)) {
    if (part == "..") refuse("one with '..'");
    if (part.empty() || part == ".") refuse("one with an empty part or '.'");
  }
}

std::optional<std::string> read_source(const fs::path& path) {
  // O_NONBLOCK: a fifo of that name must not hang the program.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  const FileContent content = read_whole(file, files::largest_text);
  if (content.bytes) return *content.bytes;
  const std::string message = fmt::format("cannot read the policy '{}': {}", path.string(), content.error);
  if (content.passing) throw NotNow(message, {path.string(), 0});
  throw FileError(message, {path.string(), 0});
}

FileContent read_beneath(const fs::path& folder, const std::string& name, uint64_t largest) {
  FolderWalk walk(folder, name);
  const Descriptor file(walk.open_file());
  return file.get() < 0 ? walk.trouble().content(largest) : read_whole(file, largest);
}

PolicyFiles::PolicyFiles(const fs::path& file, Verify verify, const Files& before)
    : folder_(folder_of(file)), verify_(std::move(verify)), before_(before), bytes_left_(most_bytes) {}

PolicyFiles::PolicyFiles(const fs::path& file, std::shared_ptr<const Files> given)
    : folder_(folder_of(file)), given_(std::move(given)), bytes_left_(most_bytes) {}

std::shared_ptr<const std::string> PolicyFiles::read(const std::string& name) {
  check_name(name);
  if (read_.size() >= most_files && !read_.count(name))
    return usable_bytes(
        name, FileContent::unread(fmt::format("a policy may read {} files, and it is another one", most_files), 0));
  const auto [place, fresh] = read_.try_emplace(name);
  FileContent& content = place->second;
  if (fresh && given_) {
    const auto listed = given_->find(name);
    content = listed != given_->end() ? listed->second : FileContent::unread("bundle.json does not list it", 0);
  } else if (fresh) {
    const uint64_t limit = name.ends_with(".lua") ? files::largest_text : largest_file;
    content = read_beneath(folder_, name, std::min(limit, bytes_left_));
    if (content.bytes) verify(name, content);
    if (content.passing) put_off_ = content.error;
  }
  return usable_bytes(name, content);
}

void PolicyFiles::verify(const std::string& name, FileContent& content) {
  bytes_left_ -= content.bytes->size();
  if (const auto known = before_.find(name); known != before_.end() && known->second.is_same_read(content))
    content = known->second;
  else
    content.checksum = files::checksum(*content.bytes);
  content.refused = false;
  content.error.clear();
  try {
    verify_file(verify_, folder_ / name, *content.bytes);
  } catch (const FileError& error) {
    content.refused = true;
    content.error = error.what();
  }
}

bool is_unchanged(const fs::path& file, const Files& files) {
  return std::all_of(files.begin(), files.end(), [&](const auto& one) {
    const FileContent now = read_beneath(folder_of(file), one.first, one.second.largest);
    if (now.passing) throw NotNow(unread_message(one.first, now.error), {file.string(), 0});
    return now.is_same_read(one.second);
  });
}

std::string fingerprint_of(const fs::path& file, const Files& files) {
  std::string text;
  for (const auto& [name, content] : files) {
    const FileContent now = read_beneath(folder_of(file), name, content.largest);
    text += now.bytes ? files::checksum_text(files::checksum(*now.bytes)) : now.error;
  }
  return text;
}

std::set<fs::path> places_of(const fs::path& file, const std::vector<std::string>& names) {
  std::set<fs::path> places;
  for (const std::string& name : names) {
    const std::vector<fs::path> seen = FolderWalk(folder_of(file), name).seen();
    places.insert(seen.begin(), seen.end());
  }
  return places;
}

decltype(ScriptOptions::read_file) files_beside(const fs::path& file) {
  return [mutex = std::make_shared<std::mutex>(),
          files =
              std::make_shared<PolicyFiles>(fs::absolute(file).lexically_normal(), Verify())](const std::string& name) {
    const std::lock_guard lock(*mutex);
    return files->read(name);
  };
}

}  // namespace triage::policy
