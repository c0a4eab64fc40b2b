// What this process has captured and compiled, as a bundle.
#include <triage/cache_artifacts.h>

#include <fmt/format.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/backends/fused/kernel_cache/cache_folder.h"
#include "runtime/backends/fused/kernel_cache/checksum_trailer.h"
#include "runtime/backends/fused/kernel_cache/kernel_files.h"
#include "runtime/backends/fused/kernels/build_directory.h"
#include "runtime/backends/fused/kernels/kernel.h"
#include "runtime/backends/fused/kernels/system_compiler.h"
#include "runtime/messages/boundary.h"

namespace triage {
namespace {

const std::atomic<bool> never{false};

/// Nothing where there is no compiler, or it fails.
std::optional<std::string> compiled(const std::string& source) {
  try {
    const fused::BuildDirectory directory;
    const std::string object = directory / "kernel.so";
    fused::SystemCompiler::instance(never).compile(
        source, object, {"-Dtriage_rows=" + fused::rows_symbol(fused::hash_of(source))}, never);
    std::ifstream file(object, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Where the machine code of this process's kernels is found again: loaded code is not taken out of memory.
class SharedObjects {
 public:
  SharedObjects() {
    for (fused::KeptKernel& kept : fused::kept::kernels_for_here())
      kept_.emplace(std::move(kept.source), std::move(kept.shared_object));
  }
  std::optional<std::string> of(const fused::KernelInUse& kernel) const {
    if (kernel.shared_object) return kernel.shared_object();
    if (const auto found = kept_.find(kernel.source); found != kept_.end()) return found->second;
    return compiled(kernel.source);
  }

 private:
  std::unordered_map<std::string, std::string> kept_;
};

}  // namespace

CacheInfo save_cache_artifacts(const std::filesystem::path& file) {
  return messages::errors_only([&] {
    const std::vector<fused::KernelInUse> in_use = fused::kernels_in_use();
    const std::vector<KnownCall> calls = fused::seen_calls();
    if (in_use.empty() && calls.empty())
      throw Error(
          fmt::format("cannot save \"{}\": this process has captured no policy with backend fused and compiled no "
                      "kernel; call its policies first",
                      file.string()));
    const SharedObjects objects;
    std::vector<std::string> found;
    found.reserve(in_use.size());  // the views below stay
    std::vector<fused::Bundle::Kernel> kernels;
    for (const fused::KernelInUse& kernel : in_use)
      if (auto object = objects.of(kernel)) {
        found.push_back(std::move(*object));
        kernels.push_back({kernel.source, found.back()});
      }
    CacheInfo info = fused::write_bundle(file, kernels, calls, "");
    info.left_out = in_use.size() - kernels.size();
    return info;
  });
}

}  // namespace triage
