#include "runtime/messages/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace triage::messages {
namespace {

unsigned char byte_at(std::string_view text, size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
}

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: no UTF-8
};

/// The character that `text` begins with.
Character first_of(std::string_view text) {
  const unsigned char lead = byte_at(text, 0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return {};
  uint32_t code = lead & (0xFFu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte_at(text, i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte_at(text, i) & 0x3Fu);
  }
  constexpr uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < smallest[bytes] || code > 0x10FFFF || surrogate ? Character{} : Character{code, bytes};
}

/// Ends of lines and paragraphs, and what writes from right to left.
bool moves_text(uint32_t code) {
  return code == 0x061C || code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

bool is_plain(char c) { return c >= 0x20 && c < 0x7F; }

std::string escaped(std::string_view text, bool on_one_line) {
  std::string result;
  result.reserve(text.size() + 8);
  for (size_t at = 0; at < text.size();) {
    const Character next = first_of(text.substr(at));
    const size_t bytes = std::max<size_t>(next.bytes, 1);
    if (next.bytes == 0)
      result += fmt::format("\\x{:02x}", byte_at(text, at));
    else if (next.code == '\n' || next.code == '\t')
      result += on_one_line ? (next.code == '\n' ? "\\n" : "\\t") : text.substr(at, 1);
    else if (next.code == '\r')
      result += "\\r";
    else if (next.code < 0x20 || next.code == 0x7F)
      result += fmt::format("\\x{:02x}", next.code);
    else if ((next.code >= 0x80 && next.code < 0xA0) || moves_text(next.code))
      result += fmt::format("\\u{{{:x}}}", next.code);
    else
      result += text.substr(at, bytes);
    at += bytes;
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) {
  const auto is_as_it_is = [](char c) { return is_plain(c) || c == '\n' || c == '\t'; };
  return std::all_of(text.begin(), text.end(), is_as_it_is) ? std::string(text) : escaped(text, false);
}

std::string one_line(std::string_view text) {
  return std::all_of(text.begin(), text.end(), is_plain) ? std::string(text) : escaped(text, true);
}

std::string json_text(std::string_view text) {
  std::string json = "\"";
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') json += '\\';
    if (c == '\n' || c == '\t')
      json += c == '\n' ? "\\n" : "\\t";
    else
      json += c;
  }
  return json + '"';
}

}  // namespace triage::messages
