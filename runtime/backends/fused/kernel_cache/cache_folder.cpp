#include "runtime/backends/fused/kernel_cache/cache_folder.h"

#include <fmt/format.h>

#include <map>
#include <system_error>
#include <utility>

#include "runtime/backends/fused/kernel_cache/cached_calls.h"
#include "runtime/backends/fused/kernel_cache/kernel_files.h"
#include "runtime/files/disk.h"

namespace triage::fused {
namespace {

namespace fs = std::filesystem;

constexpr const char* no_folder =
    "there is no folder for compiled kernels; set TRIAGE_KERNEL_CACHE, XDG_CACHE_HOME or HOME";

uint64_t bytes_of(const std::vector<fs::path>& files) {
  uint64_t bytes = 0;
  for (const fs::path& file : files) {
    std::error_code error;
    const uintmax_t size = fs::file_size(file, error);
    if (!error) bytes += size;
  }
  return bytes;
}

/// The first line of its --version; empty where all of them came with bundles.
std::string compiler_of(const std::vector<KeptKernel>& kernels) {
  for (const KeptKernel& kernel : kernels)
    if (kernel.identity != identity_of_bundles()) return kernel.identity.substr(0, kernel.identity.find('\n'));
  return "";
}

}  // namespace

FolderContent content_of_folder() {
  FolderContent content{KernelFiles::wanted_folder(), 0, 0, all_kept_calls()};
  const std::vector<fs::path> kernels = kept::files(kept::kernels);
  content.kernels = kernels.size();
  content.bytes = bytes_of(kernels) + bytes_of(kept::files(kept::calls));
  return content;
}

CacheInfo info_of(const KernelManifest& manifest, uint64_t bytes) {
  return {manifest.kernels.size(), count_policies(manifest.calls), manifest.calls.size(), bytes, 0};
}

CacheInfo write_bundle(const fs::path& file, const std::vector<Bundle::Kernel>& kernels,
                       const std::vector<KnownCall>& calls, const std::string& compiler) {
  const std::string bytes = bundle_bytes(kernels, calls, compiler);
  files::OutputFile output(file.string());
  output.write(bytes.data(), bytes.size());
  output.flush();
  output.commit();
  return {kernels.size(), count_policies(calls), calls.size(), bytes.size(), 0};
}

CacheInfo save_folder(const fs::path& file) {
  const fs::path folder = KernelFiles::wanted_folder();
  if (folder.empty()) throw FileError(fmt::format("cannot save \"{}\": {}", file.string(), no_folder));
  const std::vector<KeptKernel> kept_kernels = kept::kernels_for_here();
  const std::vector<KnownCall> calls = all_kept_calls();
  if (kept_kernels.empty() && calls.empty())
    throw Error(
        fmt::format("there is nothing to save: \"{}\" has no kernel for this processor and no kind of call; run "
                    "policies with backend fused and the compiler mode `background` or `wait` first",
                    folder.string()));
  std::vector<Bundle::Kernel> kernels;
  for (const KeptKernel& kernel : kept_kernels) kernels.push_back({kernel.source, kernel.shared_object});
  return write_bundle(file, kernels, calls, compiler_of(kept_kernels));
}

CacheInfo load_into_folder(const fs::path& file) {
  const std::string bytes = read_kernel_file(file);
  const Bundle bundle = parse_bundle(bytes, file.string());
  check_bundle_usable(bundle, file.string());
  std::vector<KernelFiles::NewFile> fresh;
  for (const Bundle::Kernel& kernel : bundle.kernels)
    fresh.push_back(KernelFiles::kernel_file(identity_of_bundles(), kernel.source, kernel.shared_object));
  std::map<std::string, std::vector<KnownCall>> of_policies;
  for (const KnownCall& call : bundle.manifest.calls) of_policies[call.policy].push_back(call);
  for (const auto& [policy, calls] : of_policies) {
    std::vector<KnownCall> all = calls_from_bundles(policy);
    merge_calls(all, calls);
    fresh.push_back(calls_file(all, CallsFrom::a_bundle));
  }
  KernelFiles folder;
  if (!folder.put(fresh))
    throw FileError(
        fmt::format("cannot load the bundle \"{}\" into the cache folder: {}; free some space, make the "
                    "folder writable, or name another one in TRIAGE_KERNEL_CACHE",
                    file.string(), folder.refused().empty() ? no_folder : folder.refused()));
  return info_of(bundle.manifest, bytes.size());
}

FolderContent clear_folder() {
  FolderContent content = content_of_folder();
  for (const std::string_view ending : {kept::kernels, kept::calls})
    for (const fs::path& file : kept::files(ending)) {
      std::error_code error;
      fs::remove(file, error);
      if (error)
        throw FileError(fmt::format("cannot remove \"{}\" from the cache folder: {}; is the folder writable?",
                                    file.string(), error.message()));
    }
  return content;
}

}  // namespace triage::fused
