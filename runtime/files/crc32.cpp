#include "runtime/files/crc32.h"

#include <array>
#include <bit>
#include <cstring>

namespace triage::files {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t step = 16;  // bytes that are taken at once

using Table = std::array<uint32_t, 256>;

/// tables[n][byte]: what `byte` makes of the sum when n more bytes follow it.
constexpr std::array<Table, step> make_tables() {
  std::array<Table, step> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320u : 0);
    tables[0][byte] = sum;
  }
  for (size_t n = 1; n < step; ++n)
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[n - 1][byte];
      tables[n][byte] = before >> 8 ^ tables[0][before & 0xFF];
    }
  return tables;
}
constexpr std::array<Table, step> tables = make_tables();

/// What four bytes make of the sum when `n` more bytes follow them.
uint32_t of_word(uint32_t word, size_t n) noexcept {
  return tables[n + 3][word & 0xFF] ^ tables[n + 2][word >> 8 & 0xFF] ^ tables[n + 1][word >> 16 & 0xFF] ^
         tables[n][word >> 24];
}

}  // namespace

uint32_t crc32(const void* bytes, size_t count) noexcept {
  const auto* at = static_cast<const unsigned char*>(bytes);
  uint32_t sum = ~uint32_t{0};
  for (; count >= step; at += step, count -= step) {
    std::array<uint32_t, step / 4> words;
    std::memcpy(words.data(), at, step);
    sum = of_word(words[0] ^ sum, 12) ^ of_word(words[1], 8) ^ of_word(words[2], 4) ^ of_word(words[3], 0);
  }
  for (; count > 0; ++at, --count) sum = sum >> 8 ^ tables[0][(sum ^ *at) & 0xFF];
  return ~sum;
}

}  // namespace triage::files
