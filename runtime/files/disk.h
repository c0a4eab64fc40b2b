#pragma once
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace triage::files {

/// What is wrong with a file's content or with a value to be written: a clause without the path, which the entry points
/// of files.h put in front when they make a FileError of it.
struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A regular file, open for reading, or bytes that were read before. Throws FileError where there is none (missing, a
/// folder, no permission).
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  /// `bytes` outlive it.
  explicit InputFile(std::string_view bytes) : bytes_(bytes.data()), size_(bytes.size()) {}
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  uint64_t size() const { return size_; }
  /// Reads exactly `count` bytes; throws Malformed where the file ends before.
  void read(uint64_t offset, void* to, size_t count) const;
  /// At most `count` bytes from the start: what the magic bytes are looked up in.
  std::string head(size_t count) const;

 private:
  std::string path_;
  int fd_ = -1;
  const char* bytes_ = nullptr;  // in the place of a descriptor
  uint64_t size_ = 0;
};

/// No script is larger, and no file of text that is read whole.
inline constexpr uint64_t largest_text = uint64_t{16} << 20;

/// All bytes of a regular file. Throws FileError: where there is none, where it cannot be read, or is larger than
/// `largest`.
std::string read_text(const std::string& path, uint64_t largest = largest_text);

/// Writes all `count` bytes to an open descriptor. False, with `errno` set, where a write fails.
bool write_all(int fd, const void* data, size_t count);

/// Of a file or folder that the runtime made: a regular file or folder itself (no link), of this user, to which nobody
/// else may write. Then what is in it is what this user put there. `kind` is S_IFREG or S_IFDIR.
bool is_ours(const std::string& path, uint32_t kind);

/// A file in the making: bytes go to a temporary file beside `path`; `commit` flushes it and renames it over `path`.
/// Destroyed without commit, it leaves nothing behind. A symbolic link stays one: what it points to is replaced. The
/// permissions of a replaced file are kept. `own`, of a file that the runtime keeps for itself: nobody else may read
/// it, and a link in its place is replaced.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path, bool own = false);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  void write(const void* data, size_t count);
  void flush();
  void commit();

 private:
  [[noreturn]] void fail(const std::string& doing) const;

  std::string path_;
  std::string target_;     // `path_` with links followed
  std::string folder_;     // that of `target_`
  std::string temporary_;  // empty once it is renamed or moved from
  int fd_ = -1;
};

void write_file(const std::string& path, std::string_view bytes);

/// In words, by the first bytes: "a NumPy .npy file", "an empty file", ...
std::string describe_content(const InputFile& file);

}  // namespace triage::files
