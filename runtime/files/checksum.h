#pragma once
#include <cstdint>
#include <string_view>

namespace triage::files {

/// 64 bits that tell one content from another (FNV-1a); stable over machines and releases, not meant against forgery.
inline uint64_t checksum(std::string_view bytes) noexcept {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return hash;
}

}  // namespace triage::files
