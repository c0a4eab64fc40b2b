#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace triage::policy {

/// SHA-256 (FIPS 180-4).
std::array<uint8_t, 32> sha256(std::string_view bytes);

/// What stands for a value that a log must not have: "masked:" and 32 hexadecimal digits, the same for the same value. With a key
/// of HMAC-SHA256 (RFC 2104), else of SHA-256; the first half of it.
std::string masked(std::string_view value, std::string_view key);

}  // namespace triage::policy
