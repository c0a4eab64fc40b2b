#pragma once
#include <triage/cache_artifacts.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/backends/fused/kernel_cache/bundle.h"

/// The cache folder as a whole: what `triage cache` shows, saves, loads and clears.
namespace triage::fused {

struct FolderContent {
  std::filesystem::path folder;  // empty: none is named
  size_t kernels = 0;
  uint64_t bytes = 0;            // of kernels and calls
  std::vector<KnownCall> calls;  // from here and from bundles
};
FolderContent content_of_folder();

/// Kernels for this processor and kinds of calls, as a bundle. Throws FileError where it cannot be written, and Error where there is
/// nothing to write.
CacheInfo save_folder(const std::filesystem::path& file);
/// Puts what is in a bundle into the folder, or nothing: throws FileError where the file is not fit, or the folder does not take it.
CacheInfo load_into_folder(const std::filesystem::path& file);
/// Removes the files that the runtime has put there. Throws FileError where one cannot be removed.
FolderContent clear_folder();

/// The bytes of a file of kernels; throws FileError.
std::string read_kernel_file(const std::filesystem::path& file);
/// `triage::load_kernels` of bytes that were read from `file`.
KernelManifest load_kernels(std::string bytes, const std::filesystem::path& file);
/// Writes a bundle, whole or not at all.
CacheInfo write_bundle(const std::filesystem::path& file, const std::vector<Bundle::Kernel>& kernels,
                       const std::vector<KnownCall>& calls, const std::string& compiler);
/// `bytes`: the size of the file.
CacheInfo info_of(const KernelManifest& manifest, uint64_t bytes);

}  // namespace triage::fused
