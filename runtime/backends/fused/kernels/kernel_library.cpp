#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <system_error>
#include <unordered_map>

#include "runtime/backends/fused/kernel_cache/bundle.h"
#include "runtime/backends/fused/kernel_cache/cache_folder.h"
#include "runtime/backends/fused/kernel_cache/checksum_trailer.h"
#include "runtime/backends/fused/kernel_cache/kernel_manifest.h"
#include "runtime/backends/fused/kernels/kernel.h"
#include "runtime/files/disk.h"
#include "runtime/messages/boundary.h"
#include "runtime/messages/fork_safe_mutex.h"
#include "runtime/messages/printable.h"

namespace triage {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw FileError(fmt::format("cannot use the kernels in \"{}\": {}", messages::one_line(path.string()), why));
}

KernelManifest manifest_of(const std::string& bytes, const fs::path& path) {
  if (fused::is_bundle(bytes)) {
    fused::Bundle bundle = fused::parse_bundle(bytes, path.string());
    fused::check_bundle_usable(bundle, path.string());
    return std::move(bundle.manifest);
  }
  KernelManifest manifest = fused::parse_kernel_file(bytes, path.string());
  fused::check_usable(manifest, path.string());
  return manifest;
}

/// Loads the bytes that were checked, and not what the file holds by now. The descriptor stays open: its path then names this
/// library alone, and a loader answers with what it has of a path.
void* load(std::string_view bytes, const fs::path& path) {
  const int memory = ::memfd_create("triage kernels", MFD_CLOEXEC);
  try {
    if (memory < 0 || !files::write_all(memory, bytes.data(), bytes.size()))
      throw std::system_error(errno, std::generic_category());
    if (void* const library = ::dlopen(fmt::format("/proc/self/fd/{}", memory).c_str(), RTLD_NOW | RTLD_LOCAL))
      return library;
    throw std::runtime_error(::dlerror());
  } catch (const std::exception& error) {
    if (memory >= 0) ::close(memory);
    refuse(path, std::string("it cannot be loaded from memory: ") + error.what());
  }
}

/// For the life of the process, and once for all that load the same bytes.
void* library_of(std::string_view bytes, const fs::path& path) {
  static auto& mutex = *new messages::ForkSafeMutex;
  static auto& loaded = *new std::unordered_map<std::string, void*>;
  const std::lock_guard lock(mutex);
  void*& library = loaded[fused::hash_of(bytes)];
  if (!library) library = load(bytes, path);
  return library;
}

void* find(void* library, const std::string& symbol, const fs::path& path) {
  if (void* found = ::dlsym(library, symbol.c_str())) return found;
  refuse(path, "what is loaded lacks " + symbol);
}

/// Its kernels are loaded when they are first asked for: a process uses few of those of a whole cache folder.
KernelManifest load_bundle(std::string content, const fs::path& file) {
  const auto bytes = std::make_shared<const std::string>(std::move(content));
  fused::Bundle bundle = fused::parse_bundle(*bytes, file.string());
  fused::check_bundle_usable(bundle, file.string());
  std::vector<fused::AddedKernel> kernels;
  for (const fused::Bundle::Kernel& kernel : bundle.kernels) {
    const auto load = [bytes, file, kernel] {
      const std::string symbol = fused::rows_symbol(fused::hash_of(kernel.source));
      return reinterpret_cast<fused::RowsFunction>(find(library_of(kernel.shared_object, file), symbol, file));
    };
    kernels.push_back(
        {std::string(kernel.source), load, [bytes, kernel] { return std::string(kernel.shared_object); }});
  }
  if (!kernels.empty()) fused::add_kernels(kernels, file.string());
  fused::add_known_calls(bundle.manifest.calls);
  return std::move(bundle.manifest);
}

}  // namespace

std::string fused::read_kernel_file(const fs::path& path) {
  std::error_code error;
  const auto kind = fs::status(path, error).type();
  if (kind == fs::file_type::not_found) refuse(path, "there is no such file");
  if (kind != fs::file_type::regular)
    refuse(path, kind == fs::file_type::directory ? "it is a folder" : "it is no regular file");
  try {
    constexpr uint64_t largest = uint64_t{1} << 30;
    return files::read_text(path.string(), largest);
  } catch (const FileError& error) {
    refuse(path, error.what());
  }
}

KernelManifest read_kernel_manifest(const fs::path& file) {
  return messages::errors_only([&] { return manifest_of(fused::read_kernel_file(file), file); });
}

CacheInfo load_cache_artifacts(const fs::path& file) {
  return messages::errors_only([&] {
    std::string bytes = fused::read_kernel_file(file);
    const uint64_t size = bytes.size();
    return fused::info_of(load_bundle(std::move(bytes), file), size);
  });
}

KernelManifest load_kernels(const fs::path& file) {
  return messages::errors_only([&] { return fused::load_kernels(fused::read_kernel_file(file), file); });
}

KernelManifest fused::load_kernels(std::string bytes, const fs::path& file) {
  if (fused::is_bundle(bytes)) return load_bundle(std::move(bytes), file);
  KernelManifest manifest = manifest_of(bytes, file);
  void* const library = library_of(bytes, file);
  std::vector<fused::AddedKernel> kernels;
  for (const std::string& hash : manifest.kernels) {
    const std::string source = static_cast<const char*>(find(library, fused::source_symbol(hash), file));
    if (fused::hash_of(source) != hash) refuse(file, fmt::format("the source of {} is not what its name says", hash));
    const auto function = reinterpret_cast<fused::RowsFunction>(find(library, fused::rows_symbol(hash), file));
    kernels.push_back({source, [function] { return function; }});
  }
  fused::add_kernels(kernels, file.string());
  fused::add_known_calls(manifest.calls);
  return manifest;
}

}  // namespace triage
