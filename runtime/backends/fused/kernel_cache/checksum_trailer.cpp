#include "runtime/backends/fused/kernel_cache/checksum_trailer.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

namespace triage::fused {
namespace {

constexpr size_t length_digits = 20, hash_digits = 32;

size_t last_line_size(std::string_view mark) { return mark.size() + length_digits + 1 + hash_digits + 1; }

}  // namespace

std::string hash_of(std::string_view bytes) {
  // FNV-1a over two 64-bit lanes with different starts.
  uint64_t a = 0xCBF29CE484222325u, b = 0x84222325CBF29CE4u;
  for (const char c : bytes) {
    a = (a ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    b = (b ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    b ^= a >> 29;
  }
  return fmt::format("{:016x}{:016x}", a, b);
}

std::string with_trailer(std::string_view shared_object, std::string_view text, std::string_view mark) {
  const std::string bytes = fmt::format("{}{}{}{:0{}} ", shared_object, text, mark, text.size(), length_digits);
  return bytes + hash_of(bytes) + "\n";
}

bool has_trailer(std::string_view bytes, std::string_view mark) {
  const size_t size = last_line_size(mark);
  return bytes.size() >= size && bytes.substr(bytes.size() - size, mark.size()) == mark;
}

Checked check_trailer(std::string_view bytes, std::string_view mark) {
  if (!has_trailer(bytes, mark)) return {};
  const size_t line_size = last_line_size(mark);
  const std::string_view all = bytes.substr(0, bytes.size() - line_size);
  const std::string_view line = bytes.substr(all.size());
  size_t length = 0;
  const char* digits = line.data() + mark.size();
  const auto [end, error] = std::from_chars(digits, digits + length_digits, length);
  if (error != std::errc() || end != digits + length_digits || length > all.size() || line.back() != '\n') return {};
  const std::string_view hash = line.substr(line_size - 1 - hash_digits, hash_digits);
  if (hash != hash_of(bytes.substr(0, bytes.size() - 1 - hash_digits))) return {Checked::State::changed, {}};
  return {Checked::State::whole, all.substr(all.size() - length)};
}

std::string on_one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F || c == '\\')
      line += fmt::format("\\x{:02x}", byte);
    else
      line += c;
  }
  return line;
}

}  // namespace triage::fused
