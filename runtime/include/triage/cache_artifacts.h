#pragma once
#include <triage/api.h>
#include <triage/error.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>

/// What this process has captured and compiled, as one file, a bundle, from which the next process starts warm. As
/// torch.compiler.save_cache_artifacts and load_cache_artifacts, with a file in the place of bytes.
///
///     triage::save_cache_artifacts("warm.bundle");   // after calls of every kind that is to be warm
///     triage::load_cache_artifacts("warm.bundle");   // in the next process, before it loads its policies
///
/// A bundle holds machine code, and loading it trusts whoever made it as much as a shared library: load only files that you would
/// link.
namespace triage {

/// What is in a bundle.
struct CacheInfo {
  size_t kernels = 0;   // of the fused backend, in machine code
  size_t policies = 0;  // sources, of which there are
  size_t calls = 0;     // kinds of calls, `KnownCall`
  uint64_t bytes = 0;   // of the file
  /// Kernels that this process uses and that are not in the file: a file of `triage build` holds them, and there is no compiler.
  size_t left_out = 0;
};

/// Writes kernels of this process, waiting for those that are being compiled, and the kinds of calls that its policies were captured
/// for with backend `fused`. The file is written whole or not at all. Throws FileError if it cannot be, and Error if there is nothing
/// to write.
TRIAGE_API CacheInfo save_cache_artifacts(const std::filesystem::path& file);

/// Registers what is in a bundle in this process, as `load_kernels` does of a file of `triage build`: with every compiler mode, and
/// without the cache folder. A policy of one of its sources that is loaded afterwards is captured while it is loaded. Before
/// anything is registered, triage checks that the file is complete, from this version of triage and of LibTorch, and for this
/// processor; throws FileError that names the failed check. Thread-safe.
TRIAGE_API CacheInfo load_cache_artifacts(const std::filesystem::path& file);

}  // namespace triage
