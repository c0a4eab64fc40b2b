#pragma once
#include <triage/front_end.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace triage::policy {

/// What a read of a file gave: its bytes, or why there are none.
struct FileContent {
  std::shared_ptr<const std::string> bytes;  // null: `error` says why
  uint64_t checksum = 0;                     // of the bytes, where they are of a version
  std::string error;                         // a clause that names no path
  uint64_t largest = 0;                      // the limit it was read with
  bool refused = false;                      // the host did not let it be used: `error` says why
  bool passing = false;                      // the read failed for a reason that is not the file's (not_now.h)

  static FileContent unread(std::string why, uint64_t largest);
  void set_bytes(std::string content);  // and their checksum
  bool usable() const { return bytes && !refused; }
  /// Whether the disk has the same. A read that failed for a passing reason says nothing of the disk.
  bool is_same_read(const FileContent& other) const {
    if (passing || other.passing) return false;
    if (!bytes || !other.bytes) return !bytes && !other.bytes && error == other.error;
    return bytes == other.bytes || *bytes == *other.bytes;
  }
  friend bool operator==(const FileContent& a, const FileContent& b) {
    return a.refused == b.refused && a.is_same_read(b);
  }
};

/// The bytes; throws FileError where they are not usable.
std::shared_ptr<const std::string> usable_bytes(const std::string& name, const FileContent& content);

std::string unread_message(const std::string& name, const std::string& why);

/// By names relative to the policy's folder.
using Files = std::map<std::string, FileContent>;

/// All that one version of a policy is made of. Every interpreter of the version is loaded from it.
struct Contents {
  std::string source;
  Files files = {};        // what the source read when it was loaded, or failed to read
  bool in_folder = false;  // it may read files; false for a policy that was loaded from text

  /// 16 hexadecimal digits: of the source alone where it read nothing.
  std::string hash() const;
  size_t bytes() const;
  friend bool operator==(const Contents&, const Contents&) = default;
};

/// ScriptOptions::read_file of a version that was loaded before: gives what it read then, and reads nothing.
decltype(ScriptOptions::read_file) reader_of(const Contents& contents);

/// As one text, and back; nothing for a text that `packed` does not write.
std::string packed(const Contents& contents);
bool is_packed(std::string_view text);
std::optional<Contents> unpacked(std::string_view text);
/// The same, but the source as it is of a policy that read no files.
std::string packed_or_source(const Contents& contents);
std::optional<Contents> unpacked_or_source(const std::string& text);

}  // namespace triage::policy
