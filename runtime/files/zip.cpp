// PKWARE's APPNOTE: 4.3.7 (header of a member), 4.3.12 (its entry in the directory), 4.3.14 to 4.3.16 (ends of the
// directory), 4.5.3 (numbers of 64 bits).
#include "runtime/files/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "runtime/files/crc32.h"

namespace triage::files {
namespace {

constexpr size_t end_record = 22;  // its size without the comment
constexpr size_t end64_record = 56, end64_locator = 20;
constexpr size_t longest_comment = 65535;
constexpr size_t entry_record = 46;  // a member's in the directory, without its names
constexpr size_t member_header = 30;
constexpr uint64_t largest_directory = uint64_t{256} << 20;
constexpr uint32_t in_zip64 = 0xFFFFFFFF;
constexpr uint64_t facts_follow = 8;  // a flag of a header: checksum and sizes stand behind the data

[[noreturn]] void fail(std::string_view what) { throw Malformed(fmt::format("its zip archive is damaged ({})", what)); }

uint64_t number(std::string_view bytes, size_t at, size_t count) {
  if (at + count > bytes.size()) fail("a record of its directory ends too early");
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[at + i])) << 8 * i;
  return value;
}

/// Where the directory begins and how many bytes it has. As LibTorch and Python do, the wide numbers go first where
/// there are such, so that a file is not one archive to them and another one here.
std::pair<uint64_t, uint64_t> directory(const InputFile& file) {
  const uint64_t size = std::min<uint64_t>(file.size(), end64_locator + end_record + longest_comment);
  std::string tail(size, '\0');
  file.read(file.size() - size, tail.data(), size);
  const size_t at = tail.rfind("PK\5\6");
  if (at == std::string::npos || at + end_record > size) fail("the end of its directory is missing");
  const bool wide = at >= end64_locator && tail.compare(at - end64_locator, 4, "PK\6\7") == 0;
  if (!wide) return {number(tail, at + 16, 4), number(tail, at + 12, 4)};
  const uint64_t end64 = number(tail, at - end64_locator + 8, 8);
  if (end64 > file.size() || file.size() - end64 < end64_record) fail("the end of its directory is missing");
  std::string record(end64_record, '\0');
  file.read(end64, record.data(), record.size());
  if (record.compare(0, 4, "PK\6\6") != 0) fail("the end of its directory is missing");
  return {number(record, 48, 8), number(record, 40, 8)};
}

/// The numbers of an entry that do not fit into 32 bits stand in an extra field, in this order.
void widen(std::string_view extra, uint64_t& size, uint64_t& stored, uint64_t& header) {
  for (size_t at = 0; at + 4 <= extra.size();) {
    const uint64_t id = number(extra, at, 2), length = number(extra, at + 2, 2);
    if (id == 1) {
      size_t next = at + 4;
      for (uint64_t* field : {&size, &stored, &header}) {
        if (*field != in_zip64) continue;
        *field = number(extra, next, 8);
        next += 8;
      }
      return;
    }
    at += 4 + length;
  }
}

/// Of a member's header and of its entry in the directory: the accident that changes one leaves the other.
void check_header(std::string_view header, std::string_view name, const ZipArchive::Member& member) {
  const auto differs = [&](size_t at, uint64_t expected) {
    const uint64_t found = number(header, at, 4);
    return found != expected && found != in_zip64;
  };
  const bool facts = (number(header, 6, 2) & facts_follow) == 0;
  if (name != member.name || number(header, 8, 2) != 0 ||
      (facts && (differs(14, member.checksum) || differs(18, member.size) || differs(22, member.size))))
    fail("the header of a record differs from its directory");
}

/// Behind the first slash: the folder is named after the file, and means nothing.
std::string without_folder(std::string_view name) {
  const size_t slash = name.find('/');
  return std::string(slash == std::string_view::npos ? name : name.substr(slash + 1));
}

}  // namespace

ZipArchive::ZipArchive(const InputFile& file) : file_(file) {
  const auto [offset, bytes] = directory(file);
  if (bytes > file.size() || offset > file.size() - bytes) fail("its directory lies outside of the file");
  if (bytes > largest_directory)
    throw Malformed(fmt::format("its directory has {} bytes; the limit is {}", bytes, largest_directory));
  std::string text(bytes, '\0');
  file.read(offset, text.data(), bytes);
  const std::string_view entries(text);
  uint64_t total = 0;
  for (size_t at = 0; at + entry_record <= bytes && entries.substr(at, 4) == "PK\1\2";) {
    const size_t name = number(entries, at + 28, 2), extra = number(entries, at + 30, 2);
    const size_t end = at + entry_record + name + extra + number(entries, at + 32, 2);
    if (end > bytes) fail("a record of its directory ends too early");
    uint64_t stored = number(entries, at + 20, 4), size = number(entries, at + 24, 4);
    Member member{number(entries, at + 42, 4), 0, static_cast<uint32_t>(number(entries, at + 16, 4)),
                  std::string(entries.substr(at + entry_record, name))};
    widen(entries.substr(at + entry_record + name, extra), size, stored, member.header);
    const std::string own = without_folder(member.name);
    if (number(entries, at + 10, 2) != 0 || stored != size) {
      if (own.starts_with("code/")) throw Malformed(is_torch_script);
      throw Malformed("a record in it is compressed, which torch.save never does; save it again with torch.save");
    }
    member.size = size;
    if (size > file.size() || (total += size) > file.size()) fail("its records are larger than the file");
    if (!members_.emplace(own, std::move(member)).second)
      throw Malformed(fmt::format("it has the record \"{}\" twice", own.substr(0, 100)));
    at = end;
  }
}

const ZipArchive::Member* ZipArchive::find(const std::string& name) const {
  const auto found = members_.find(name);
  return found == members_.end() ? nullptr : &found->second;
}

void ZipArchive::read(const Member& member, void* to) const {
  std::string header(member_header, '\0');
  if (member.header > file_.size()) fail("a record lies outside of the file");
  file_.read(member.header, header.data(), header.size());
  if (header.compare(0, 4, "PK\3\4") != 0) fail("a record does not begin where its directory says");
  std::string name(number(header, 26, 2), '\0');
  const uint64_t data = member.header + member_header + name.size() + number(header, 28, 2);
  if (data > file_.size() || member.size > file_.size() - data) fail("a record lies outside of the file");
  file_.read(member.header + member_header, name.data(), name.size());
  check_header(header, name, member);
  file_.read(data, to, member.size);
  if (member.checksum != 0 && member.checksum != crc32(to, member.size))
    fail(fmt::format("the bytes of the record \"{}\" are not those that were written", member.name.substr(0, 100)));
}

std::string ZipArchive::read(const Member& member) const {
  std::string bytes(member.size, '\0');
  read(member, bytes.data());
  return bytes;
}

}  // namespace triage::files
