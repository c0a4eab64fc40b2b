#include <dlfcn.h>
#include <fmt/format.h>

#include "runtime/backends/fused/kernels/kernel.h"
#include "runtime/backends/fused/kernels/kernel_manifest.h"
#include "runtime/backends/fused/kernels/sealed.h"
#include "runtime/files/disk.h"

namespace triage {
namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::error_code error;
  const auto kind = fs::status(path, error).type();
  if (kind == fs::file_type::not_found)
    throw FileError(fmt::format("cannot use the kernels in \"{}\": there is no such file", path.string()));
  if (kind != fs::file_type::regular)
    throw FileError(fmt::format("cannot use the kernels in \"{}\": it is {}", path.string(),
                                kind == fs::file_type::directory ? "a folder" : "no regular file"));
  try {
    constexpr uint64_t largest = uint64_t{1} << 30;
    return files::read_text(path.string(), largest);
  } catch (const FileError& error) {
    throw FileError(fmt::format("cannot use the kernels in \"{}\": {}", path.string(), error.what()));
  }
}

/// `symbol` of a loaded file. A loader may answer with another file that was loaded from the same path before.
void* find(void* library, const std::string& symbol, const fs::path& path) {
  if (void* found = ::dlsym(library, symbol.c_str())) return found;
  throw FileError(
      fmt::format("cannot use the kernels in \"{}\": what is loaded lacks {}; where an earlier file of that name is in "
                  "use, start the program anew",
                  path.string(), symbol));
}

}  // namespace

KernelManifest read_kernel_manifest(const fs::path& file) {
  KernelManifest manifest = fused::unseal(content(file), file.string());
  fused::check_usable(manifest, file.string());
  return manifest;
}

KernelManifest load_kernels(const fs::path& file) {
  KernelManifest manifest = read_kernel_manifest(file);
  // With a slash in it, so that it is not looked for in the folders of libraries.
  void* library = ::dlopen(fs::absolute(file).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw FileError(fmt::format("cannot use the kernels in \"{}\": {}", file.string(), ::dlerror()));
  fused::KernelFunctions functions;
  for (const std::string& hash : manifest.kernels) {
    const std::string source = static_cast<const char*>(find(library, fused::source_symbol(hash), file));
    if (fused::hash_of(source) != hash)
      throw FileError(fmt::format("cannot use the kernels in \"{}\": the source of {} is not what its name says",
                                  file.string(), hash));
    functions.emplace_back(source,
                           reinterpret_cast<fused::RowsFunction>(find(library, fused::rows_symbol(hash), file)));
  }
  fused::add_kernels(functions, file.string());
  return manifest;
}

}  // namespace triage
