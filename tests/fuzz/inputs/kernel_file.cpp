#include "runtime/backends/fused/kernel_cache/bundle.h"
#include "runtime/backends/fused/kernel_cache/checksum_trailer.h"
#include "runtime/backends/fused/kernel_cache/kernel_manifest.h"
#include "tests/fuzz/inputs/targets.h"

namespace triage::fuzz {
namespace {

/// Machine code is trusted: what is read without running it is the manifest.
constexpr std::string_view no_code =
    "\x7f"
    "ELF and so on";

KernelManifest manifest() {
  return {"repair.lua",
          "0.1.0",
          fused::kernel_abi,
          "g++ 12",
          "x86_64",
          {"avx2", "fma"},
          {fused::hash_of("source")},
          {{"0123456789abcdef", {"f32[32, 512]", "i64[32] grad"}}}};
}

}  // namespace

/// As a file of `triage build`, and as one of `triage cache save`.
void read_kernel_file(std::string_view text) {
  const std::string bundle = fused::with_trailer(no_code, text, "triage cache bundle ");
  try {
    fused::check_bundle_usable(fused::parse_bundle(bundle, "input.bundle"), "input.bundle");
  } catch (const FileError&) {
  }
  const std::string file = fused::with_trailer(no_code, text, "triage kernels ");
  const KernelManifest read = fused::parse_kernel_file(file, "input.so");
  if (fused::parse_manifest(fused::manifest_text(read)).kernels != read.kernels)
    throw Broken("a manifest is written as a text with other kernels");
  fused::with_calls(file, "input.so", read.calls);
  fused::check_usable(read, "input.so");
}

std::vector<std::string> kernel_seeds() {
  const std::string text = fused::manifest_text(manifest());
  return {text, text + "libtorch 1.13.0\nsize 6 8\n", text + fused::calls_text(manifest().calls)};
}

}  // namespace triage::fuzz
