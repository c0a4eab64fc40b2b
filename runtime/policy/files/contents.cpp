#include "runtime/policy/files/contents.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <charconv>

#include "runtime/files/checksum.h"
#include "runtime/policy/files/policy_files.h"

namespace triage::policy {
namespace {

constexpr std::string_view magic = "triage: contents of a policy, form 1\n";

void append(std::string& text, std::string_view part) { text += fmt::format("{}\n{}\n", part.size(), part); }

/// Takes parts off the front of what `append` made; nothing once a part was damaged.
class ContentsReader {
 public:
  explicit ContentsReader(std::string_view text) : rest_(text) {}
  bool at_end() const { return rest_.empty(); }

  std::optional<std::string_view> next() {
    size_t size = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
    const auto digits = static_cast<size_t>(end - rest_.data());
    const std::string_view behind = rest_.substr(digits);
    if (error != std::errc() || behind.size() < 2 || behind[0] != '\n' || size > behind.size() - 2 ||
        behind[size + 1] != '\n')
      return std::nullopt;
    rest_ = behind.substr(size + 2);
    return behind.substr(1, size);
  }

 private:
  std::string_view rest_;
};

const char* kind_of(const FileContent& content) {
  return !content.bytes ? "missing" : content.refused ? "refused" : "there";
}

/// Of a file, behind its name: its kind, the limit, the reason, the bytes.
std::optional<FileContent> next_content(ContentsReader& parts) {
  const auto kind = parts.next(), limit = parts.next(), why = parts.next(), bytes = parts.next();
  if (!kind || !limit || !why || !bytes) return std::nullopt;
  FileContent content;
  const auto [end, error] = std::from_chars(limit->data(), limit->data() + limit->size(), content.largest);
  if (error != std::errc() || end != limit->data() + limit->size()) return std::nullopt;
  if (*kind != "missing") content.set_bytes(std::string(*bytes));
  content.refused = *kind == "refused";
  content.error = *why;
  return *kind == kind_of(content) ? std::optional(content) : std::nullopt;
}

}  // namespace

FileContent FileContent::unread(std::string why, uint64_t largest) {
  FileContent content;
  content.error = std::move(why);
  content.largest = largest;
  return content;
}

void FileContent::set_bytes(std::string content) {
  checksum = files::checksum(content);
  bytes = std::make_shared<const std::string>(std::move(content));
}

std::string Contents::hash() const {
  uint64_t sum = files::checksum(source);
  for (const auto& [name, file] : files)
    if (file.usable()) sum = files::checksum(fmt::format("\n{} {:016x}", name, file.checksum), sum);
  return files::checksum_text(sum);
}

size_t Contents::bytes() const {
  size_t sum = source.size();
  for (const auto& [name, file] : files) sum += file.bytes ? file.bytes->size() : 0;
  return sum;
}

decltype(ScriptOptions::read_file) reader_of(const Contents& contents) {
  if (!contents.in_folder) return nullptr;
  return [files = contents.files](const std::string& name) {
    check_name(name);
    const auto found = files.find(name);
    if (found != files.end()) return usable_bytes(name, found->second);
    return usable_bytes(name, FileContent::unread("the policy did not read it when this version was first loaded", 0));
  };
}

std::string unread_message(const std::string& name, const std::string& why) {
  return fmt::format("cannot read '{}' in the folder of the policy: {}", name, why);
}

std::shared_ptr<const std::string> usable_bytes(const std::string& name, const FileContent& content) {
  if (content.usable()) return content.bytes;
  throw FileError(unread_message(name, content.error));
}

std::string packed(const Contents& contents) {
  std::string text(magic);
  append(text, contents.in_folder ? "folder" : "text");
  append(text, contents.source);
  for (const auto& [name, file] : contents.files) {
    append(text, name);
    append(text, kind_of(file));
    append(text, std::to_string(file.largest));
    append(text, file.error);
    append(text, file.bytes ? *file.bytes : "");
  }
  return text;
}

bool is_packed(std::string_view text) { return text.starts_with(magic); }

std::optional<Contents> unpacked(std::string_view text) {
  if (!is_packed(text)) return std::nullopt;
  ContentsReader parts(text.substr(magic.size()));
  const auto place = parts.next(), source = parts.next();
  if (!place || !source) return std::nullopt;
  Contents contents;
  contents.in_folder = *place == "folder";
  contents.source = *source;
  while (!parts.at_end()) {
    const auto name = parts.next();
    const auto content = next_content(parts);
    if (!name || !content) return std::nullopt;
    contents.files[std::string(*name)] = *content;
  }
  return contents;
}

std::string packed_or_source(const Contents& contents) {
  return contents.files.empty() && !is_packed(contents.source) ? contents.source : packed(contents);
}

std::optional<Contents> unpacked_or_source(const std::string& text) {
  return is_packed(text) ? unpacked(text) : Contents{text, {}, /*in_folder=*/true};
}

}  // namespace triage::policy
