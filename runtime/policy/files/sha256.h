#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace triage::policy {

/// SHA-256 (FIPS 180-4). Throws Error where the host's OpenSSL does not let it be used.
std::array<uint8_t, 32> sha256(std::string_view bytes);
/// ... as 64 hexadecimal digits.
std::string sha256_text(std::string_view bytes);

}  // namespace triage::policy
