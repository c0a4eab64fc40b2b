#pragma once
#include <string>

namespace triage::test {

/// A .safetensors file of this header and so many bytes of 1.
inline std::string safetensors(const std::string& header, size_t data_bytes) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> 8 * i);
  return bytes + header + std::string(data_bytes, '\1');
}

}  // namespace triage::test
