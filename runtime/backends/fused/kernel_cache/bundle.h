#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "runtime/backends/fused/kernel_cache/kernel_manifest.h"

/// A bundle: kernels, each a shared object with the source that it was compiled from, and kinds of calls, in one file. Behind them a
/// manifest in a checksum trailer (checksum_trailer.h), which tells of a file without running any of it.
namespace triage::fused {

struct Bundle {
  struct Kernel {
    std::string_view source, shared_object;  // lie elsewhere
  };
  KernelManifest manifest;
  std::string libtorch;
  std::vector<Kernel> kernels;
};

/// Whether the file says that it is one; it may be damaged.
bool is_bundle(std::string_view bytes);
/// Kernels and calls of this process or its cache folder, with the manifest of this version and processor. `compiler`: what the
/// kernels were made by.
std::string bundle_bytes(const std::vector<Bundle::Kernel>& kernels, const std::vector<KnownCall>& calls,
                         const std::string& compiler);
/// Views into `bytes`. Throws FileError that names the file where it is not whole, or says of itself what is not so.
Bundle parse_bundle(std::string_view bytes, const std::string& file);
/// Throws FileError where this process cannot use it: another version of triage or LibTorch, another processor.
void check_bundle_usable(const Bundle& bundle, const std::string& file);

/// How many policies these calls are of.
size_t count_policies(const std::vector<KnownCall>& calls);

}  // namespace triage::fused
