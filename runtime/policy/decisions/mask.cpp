#include "runtime/policy/decisions/mask.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <triage/error.h>

#include <array>
#include <cstdint>

#include "runtime/policy/files/sha256.h"

namespace triage::policy {

std::string masked(std::string_view value, std::string_view key) {
  std::array<uint8_t, 32> hash;
  if (key.empty())
    hash = sha256(value);
  else if (!HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                 reinterpret_cast<const unsigned char*>(value.data()), value.size(), hash.data(), nullptr))
    // Where the host's OpenSSL does not let SHA-256 be used, nothing may go unmasked.
    throw Error("OpenSSL could not compute SHA-256, with which fields of the decision log are masked");
  std::string text = "masked:";
  for (size_t i = 0; i < hash.size() / 2; ++i) text += fmt::format("{:02x}", hash[i]);
  return text;
}

}  // namespace triage::policy
