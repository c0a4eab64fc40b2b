#include "runtime/policy/files/sha256.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <triage/error.h>

namespace triage::policy {

std::array<uint8_t, 32> sha256(std::string_view bytes) {
  std::array<uint8_t, 32> hash;
  if (EVP_Digest(bytes.data(), bytes.size(), hash.data(), nullptr, EVP_sha256(), nullptr) != 1)
    throw Error("OpenSSL could not compute SHA-256, which triage needs for bundles and masked decision logs");
  return hash;
}

std::string sha256_text(std::string_view bytes) { return fmt::format("{:02x}", fmt::join(sha256(bytes), "")); }

}  // namespace triage::policy
