#pragma once
#include <triage/error.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

/// Kernels of the fused backend that were compiled ahead of time, for hosts without a compiler.
///
///     triage build repair.lua -o repair.so                       # where there is a compiler
///     triage::RuntimeOptions options{.backend = "fused", .kernels = {"repair.so"}};
///
/// A file holds machine code, and loading it runs code in this process: load only what you would link. No policy can name
/// one. Which kernel serves a graph is decided by the whole source of the kernel, compared byte for byte.
namespace triage {

/// What a file of kernels says of itself.
struct KernelManifest {
  std::string name;                   // what it was built from
  std::string version;                // of triage
  int abi = 0;                        // of how kernels are called
  std::string compiler;               // the first line of its --version
  std::string architecture;           // "x86_64"
  std::vector<std::string> features;  // of the processor that its code may use, as /proc/cpuinfo names them
  std::vector<std::string> kernels;   // the hash of each one's source
};

/// Makes the kernels of a file known to this process; a graph that needs one of them has it at once. Kernels stay until the
/// process ends. Before any of its code runs, the file is checked: it is whole, from this version of triage, and this
/// processor has what it needs. Throws FileError that says which of this fails. Thread-safe.
KernelManifest load_kernels(const std::filesystem::path& file);

/// The same checks, without loading it.
KernelManifest read_kernel_manifest(const std::filesystem::path& file);

/// While one lives, fused graphs compile nothing: it notes the kernels they ask for, in every thread of the process, and the
/// interpreter serves these graphs for good. Capture what is wanted, then build.
class KernelBuilder {
 public:
  KernelBuilder();
  ~KernelBuilder();
  KernelBuilder(const KernelBuilder&) = delete;
  KernelBuilder& operator=(const KernelBuilder&) = delete;

  /// How many kernels were asked for so far.
  size_t size() const;
  /// Compiles them, and gives the bytes of a file for `load_kernels`. `cpu` is what the compiler's -march takes: "native" is
  /// the processor at hand, "x86-64-v3" any of the last ten years. Throws InputError for a processor that the compiler does
  /// not know, Error where nothing was asked for, or where there is no compiler, or it fails.
  std::string build(const std::string& name, const std::string& cpu = "native") const;

 private:
  std::unique_ptr<std::set<std::string>> sources_;
};

}  // namespace triage
