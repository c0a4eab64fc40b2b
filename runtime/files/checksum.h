#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

/// Checksums tell accidents. They are not meant against forgery.
namespace triage::files {

inline constexpr uint64_t kChecksumOfNothing = 0xcbf29ce484222325u;

/// 64 bits that tell one content from another (FNV-1a); stable over machines and releases. With the checksum of what
/// stands before `bytes` it goes on from there.
inline uint64_t checksum(std::string_view bytes, uint64_t before = kChecksumOfNothing) noexcept {
  for (const char byte : bytes) before = (before ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return before;
}

inline std::string checksum_text(uint64_t checksum) { return fmt::format("{:016x}", checksum); }

/// A last line behind `content`: `label`, and the checksum of all before it.
inline std::string checksum_line(std::string_view label, uint64_t checksum) {
  return fmt::format("{}{}\n", label, checksum_text(checksum));
}

/// A text without such a line, and whether that is the one of its content. `before`: as `checksum` takes it.
struct ChecksummedText {
  std::string_view content;
  bool intact = false;
};
inline ChecksummedText without_checksum(std::string_view text, std::string_view label,
                                        uint64_t before = kChecksumOfNothing) {
  const size_t end = text.rfind(label);
  if (end == std::string_view::npos) return {text, false};
  const std::string_view content = text.substr(0, end);
  return {content, text.substr(end) == checksum_line(label, checksum(content, before))};
}

}  // namespace triage::files
