// The directory of a zip archive (PKWARE's APPNOTE, 4.3.12 and 4.3.16), only to see how its members are stored.
#include <algorithm>
#include <cstring>
#include <string>

#include "runtime/files/formats.h"

namespace triage::files {
namespace {

constexpr size_t end_record = 22;  // its size without the comment
constexpr size_t longest_comment = 65535;
constexpr size_t member_record = 46;  // a member's, without its names
constexpr uint32_t in_zip64 = 0xFFFFFFFF;

uint32_t number(const std::string& bytes, size_t at, size_t count) {
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])) << 8 * i;
  return value;
}

/// Where the directory begins and how many bytes it has; zeros where the archive has none (its reader then says so).
std::pair<uint64_t, uint64_t> directory(const InputFile& file) {
  const uint64_t size = std::min<uint64_t>(file.size(), end_record + longest_comment);
  std::string tail(size, '\0');
  file.read(file.size() - size, tail.data(), size);
  const size_t at = tail.rfind("PK\5\6");
  if (at == std::string::npos || at + end_record > size) return {0, 0};
  const uint32_t bytes = number(tail, at + 12, 4), offset = number(tail, at + 16, 4);
  if (offset != in_zip64) return {offset, bytes};
  const size_t at64 = tail.rfind("PK\6\6", at);
  if (at64 == std::string::npos || at64 + 56 > size) return {0, 0};
  const auto wide = [&](size_t field) {
    return number(tail, at64 + field, 4) | static_cast<uint64_t>(number(tail, at64 + field + 4, 4)) << 32;
  };
  return {wide(48), wide(40)};
}

}  // namespace

void check_not_compressed(const InputFile& file) {
  auto [offset, bytes] = directory(file);
  if (bytes > file.size() || offset > file.size() - bytes) return;
  std::string members(bytes, '\0');
  file.read(offset, members.data(), bytes);
  for (size_t at = 0; at + member_record <= bytes && members.compare(at, 4, std::string_view("PK\1\2", 4)) == 0;) {
    if (number(members, at + 10, 2) != 0)
      throw Malformed("a record in it is compressed, which torch.save never does; save it again with torch.save");
    at += member_record + number(members, at + 28, 2) + number(members, at + 30, 2) + number(members, at + 32, 2);
  }
}

}  // namespace triage::files
