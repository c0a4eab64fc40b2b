#include "runtime/policy/decisions/mask.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <triage/error.h>

#include <array>
#include <cstdint>

#include "runtime/policy/files/sha256.h"

namespace triage::policy {
namespace {

using Hash = std::array<uint8_t, 32>;

/// Where the host's OpenSSL does not let SHA-256 be used, nothing may go unmasked.
void check(bool done) {
  if (!done) throw Error("OpenSSL could not compute SHA-256, with which fields of the decision log are masked");
}

Hash hmac(std::string_view key, std::string_view value) {
  Hash hash;
  check(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(value.data()), value.size(), hash.data(), nullptr) != nullptr);
  return hash;
}

}  // namespace

std::string masked(std::string_view value, std::string_view key) {
  const Hash hash = key.empty() ? sha256(value) : hmac(key, value);
  std::string text = "masked:";
  for (size_t i = 0; i < hash.size() / 2; ++i) text += fmt::format("{:02x}", hash[i]);
  return text;
}

}  // namespace triage::policy
