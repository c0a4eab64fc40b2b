// Characters that word processors, web pages and other keyboards put into a source, and that Lua does not know.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

#include "bindings/lua/rewriter/habits/habits.h"

namespace triage::lua::rewriter {
namespace {

struct CharacterRange {
  uint32_t first, last;
  std::string_view name, instead;  // an empty `instead`: delete it
};

constexpr std::array kCharacters = std::to_array<CharacterRange>({
    {0xA0, 0xA0, "a non-breaking space", "a space"},
    {0xAB, 0xAB, "an angle quotation mark", "\""},
    {0xAD, 0xAD, "a soft hyphen", ""},
    {0xB2, 0xB2, "a superscript two", "^2"},
    {0xB3, 0xB3, "a superscript three", "^3"},
    {0xB4, 0xB4, "an accent", "'"},
    {0xBB, 0xBB, "an angle quotation mark", "\""},
    {0xD7, 0xD7, "a multiplication sign", "*"},
    {0xF7, 0xF7, "a division sign", "/"},
    {0x2000, 0x200A, "a wide or narrow space", "a space"},
    {0x200B, 0x200F, "an invisible character", ""},
    {0x2010, 0x2015, "a dash", "-"},
    {0x2018, 0x201B, "a curly quotation mark", "'"},
    {0x201C, 0x201F, "a curly quotation mark", "\""},
    {0x2026, 0x2026, "an ellipsis", "..."},
    {0x2028, 0x2029, "a line separator", "a line break"},
    {0x202A, 0x202E, "an invisible character", ""},
    {0x202F, 0x202F, "a narrow space", "a space"},
    {0x205F, 0x205F, "a narrow space", "a space"},
    {0x2060, 0x206F, "an invisible character", ""},
    {0x2212, 0x2212, "a minus sign", "-"},
    {0x2260, 0x2260, "a sign for not equal", "~="},
    {0x2264, 0x2264, "a sign for less or equal", "<="},
    {0x2265, 0x2265, "a sign for greater or equal", ">="},
    {0x3000, 0x3000, "a wide space", "a space"},
    {0xFEFF, 0xFEFF, "a byte order mark", ""},
});

/// The code point that begins at `byte`; -1 where the bytes are no UTF-8.
int64_t code_point(std::string_view source, size_t byte) {
  const auto at = [&](size_t i) { return i < source.size() ? static_cast<unsigned char>(source[i]) : 0u; };
  const unsigned first = at(byte);
  const size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC2 ? 1 : 0;
  if (more == 0 || first > 0xF4) return -1;
  int64_t code = first & (0x3Fu >> more);
  for (size_t i = 1; i <= more; i++) {
    if ((at(byte + i) & 0xC0u) != 0x80u) return -1;
    code = code << 6 | (at(byte + i) & 0x3Fu);
  }
  return code;
}

std::string formatted(const char* format, uint32_t value) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

/// What the character is, and what to write for it.
std::string said_of(uint32_t code) {
  constexpr uint32_t first_wide = 0xFF01, last_wide = 0xFF5E, to_ascii = 0xFEE0;
  if (code >= first_wide && code <= last_wide)
    return "a wide character; write " + std::string(1, static_cast<char>(code - to_ascii));
  const auto* const found = std::find_if(kCharacters.begin(), kCharacters.end(), [&](const CharacterRange& each) {
    return code >= each.first && code <= each.last;
  });
  if (found == kCharacters.end()) return "no character of Lua; names have the letters a-z and A-Z, digits and _";
  return std::string(found->name) + (found->instead.empty() ? "; delete it" : "; write " + std::string(found->instead));
}

}  // namespace

Hint hint_of_character(std::string_view source, size_t byte) {
  const auto first = byte < source.size() ? static_cast<unsigned char>(source[byte]) : 0u;
  if (first < 0x80) return {};
  const size_t before = byte == 0 ? std::string_view::npos : source.find_last_of("\r\n", byte - 1);
  const std::string column = std::to_string(byte - (before == std::string_view::npos ? 0 : before + 1) + 1);
  const int64_t code = code_point(source, byte);
  if (code < 0) {
    if (byte == 0) return {};  // no text at all
    const std::string shown = formatted("0x%02X", first);
    return {"the byte " + shown + " in column " + column + " is no UTF-8; save the file as UTF-8", byte, {}};
  }
  const std::string shown = formatted("U+%04X", static_cast<uint32_t>(code));
  return {shown + " in column " + column + " is " + said_of(static_cast<uint32_t>(code)), byte, "'<" + shown + ">'"};
}

}  // namespace triage::lua::rewriter
