#include "runtime/export/base64.h"

#include <triage/error.h>

#include <array>
#include <cstdint>

namespace triage::exporting {
namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const std::array<int8_t, 256>& values() {
  static const std::array<int8_t, 256> table = [] {
    std::array<int8_t, 256> all{};
    all.fill(-1);
    for (size_t i = 0; i < kLetters.size(); ++i) all[static_cast<unsigned char>(kLetters[i])] = static_cast<int8_t>(i);
    return all;
  }();
  return table;
}

}  // namespace

std::string base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) text += k <= count ? kLetters[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::string from_base64(std::string_view text) {
  if (text.size() % 4 != 0) throw GraphError("the values of a constant are cut short");
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const size_t padding = i + 4 < text.size() ? 0 : text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
    uint32_t group = 0;
    for (size_t k = 0; k < 4; ++k) {
      const int8_t value = k < 4 - padding ? values()[static_cast<unsigned char>(text[i + k])] : int8_t{0};
      if (value < 0) throw GraphError("the values of a constant hold a letter that is not base64");
      group = group << 6 | static_cast<uint32_t>(value);
    }
    for (size_t k = 0; k < 3 - padding; ++k) bytes += static_cast<char>(group >> (16 - 8 * k) & 255);
  }
  return bytes;
}

}  // namespace triage::exporting
