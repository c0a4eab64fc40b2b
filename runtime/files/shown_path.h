#pragma once
#include <fmt/format.h>

#include <string>

namespace triage::files {

/// A path as messages show it: on one line, and without what moves a cursor. This folder stands alone; elsewhere
/// `messages::one_line` does it.
inline std::string shown(const std::string& path) {
  std::string text;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      text += "\\n";
    else if (byte < 32 || byte == 127)
      text += fmt::format("\\x{:02x}", byte);
    else
      text += c;
  }
  return text;
}

}  // namespace triage::files
