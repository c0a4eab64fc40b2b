#pragma once
#include <triage/api.h>
#include <triage/error.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

/// Kernels of the fused backend, compiled ahead of time, for hosts without a compiler.
///
///     triage build repair.lua -o repair.so                       # where there is a compiler
///     triage::RuntimeOptions options{.backend = "fused", .kernels = {"repair.so"}};
///
/// A file holds machine code, and loading it runs code in this process: load only files that you would link. A policy
/// cannot name one. A kernel serves a graph only if its whole source is the same, byte for byte.
namespace triage {

/// A kind of call that a kernel file was built for.
struct KnownCall {
  std::string policy;               // VersionInfo::hash of its source
  std::vector<std::string> inputs;  // "f32[32, 512]" as graphs print types, "f32[32, 512] grad" if it requires grad
};

/// The manifest of a kernel file.
struct KernelManifest {
  std::string name;                   // what it was built from
  std::string version;                // of triage
  int abi = 0;                        // of the kernels' calling convention
  std::string compiler;               // the first line of its --version
  std::string architecture;           // "x86_64"
  std::vector<std::string> features;  // of the processor that its code may use, as /proc/cpuinfo names them
  std::vector<std::string> kernels;   // the hash of each one's source
  std::vector<KnownCall> calls = {};  // of the policy that it was built from
};

/// Registers the kernels of a file in this process; a graph that needs one of them uses it at once. Kernels stay until
/// the process ends. Before any code of the file runs, triage checks that it is complete, that it is from this version
/// of triage, and that this processor has the features it needs. Throws FileError that names the failed check.
/// `file` may also be a bundle (triage/cache_artifacts.h), which has checks of its own.
/// A policy of the same source that is loaded afterwards with backend `fused` is captured for `KernelManifest::calls` while
/// it is loaded, on synthetic inputs, so that the first real call is warm. Thread-safe.
TRIAGE_API KernelManifest load_kernels(const std::filesystem::path& file);

/// The same checks, without a load.
TRIAGE_API KernelManifest read_kernel_manifest(const std::filesystem::path& file);

/// While one lives, fused graphs compile nothing: it collects the kernels that they request, in every thread of the
/// process, and their loops run as tapes permanently. Capture the graphs first, then build.
class TRIAGE_API KernelBuilder {
 public:
  KernelBuilder();
  ~KernelBuilder();
  KernelBuilder(const KernelBuilder&) = delete;
  KernelBuilder& operator=(const KernelBuilder&) = delete;

  /// The number of kernels requested so far.
  size_t size() const;
  /// Compiles them, and returns the bytes of a file for `load_kernels`. `cpu` is a value of the compiler's -march:
  /// "native" is this processor, "x86-64-v3" any of the last ten years. Throws InputError for a processor that the
  /// compiler does not know. Throws Error if no kernel was requested, or if the compiler is missing or fails.
  std::string build(const std::string& name, const std::string& cpu = "native") const;

 private:
  std::unique_ptr<std::set<std::string>> sources_;
};

}  // namespace triage
