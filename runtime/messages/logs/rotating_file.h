#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

namespace triage::messages {

/// A file of lines that, where it would get larger than a bound, becomes NAME.1.EXT, that one NAME.2.EXT, and so on.
/// Files and folders that it makes belong to the user alone. Not thread-safe.
class RotatingFile {
 public:
  /// At most `most_files` rotated ones are kept.
  RotatingFile(std::filesystem::path path, uint64_t most_bytes, size_t most_files);
  ~RotatingFile();
  RotatingFile(const RotatingFile&) = delete;
  RotatingFile& operator=(const RotatingFile&) = delete;

  /// Opens the file, and again where somebody has moved or deleted it since. Throws FileError.
  void open();
  /// After `open`. What these throw has left the file closed.
  void write(std::string_view line);
  void flush();

 private:
  class RotatingSink;
  const std::filesystem::path path_;
  const uint64_t most_bytes_;
  const size_t most_files_;
  std::unique_ptr<RotatingSink> sink_;
};

}  // namespace triage::messages
