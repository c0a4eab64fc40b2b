#pragma once
#include <string>
#include <string_view>

namespace triage::policy {

/// What stands for a value that a log must not have: "masked:" and 32 hexadecimal digits, the same for the same value.
/// With a key of HMAC-SHA256 (RFC 2104), else of SHA-256; the first half of it.
std::string masked(std::string_view value, std::string_view key);

}  // namespace triage::policy
