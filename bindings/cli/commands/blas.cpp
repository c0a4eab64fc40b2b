#include "bindings/cli/commands/blas.h"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace triage::cli {
namespace {

struct Implementation {
  const char* name;
  const char* symbol;  // that only this one exports
  const char*
      in_path;  // in the path of its file, in lower case: Debian's libblas.so.3 of BLIS exports no more than BLAS
};

constexpr Implementation implementations[] = {
    {"OpenBLAS", "openblas_get_config", "openblas"},        {"MKL", "mkl_get_version", "libmkl"},
    {"BLIS", "bli_info_get_version_str", "blis"},           {"ATLAS", "ATL_buildinfo", "atlas"},
    {"Arm Performance Libraries", "armplversion", "armpl"}, {"NVPL", "nvpl_blas_get_version", "nvpl"},
    {"FlexiBLAS", "flexiblas_list", "flexiblas"},  // which passes calls on to another one
};

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// The file that `path` leads to: /lib/.../libblas.so.3 is a link that update-alternatives sets.
std::string real_file(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  return error ? path : real.string();
}

/// Debian has each implementation in a folder of its own: .../blas/libblas.so.3, .../openblas-openmp/libblas.so.3.
std::string openblas_beside(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path().parent_path();
  for (const char* const name : {"openblas-openmp", "openblas-pthread", "openblas-serial"}) {
    std::error_code error;
    if (std::filesystem::exists(folder / name / "libblas.so.3", error))
      return (folder / name / "libblas.so.3").string();
  }
  return "";
}

void ask_openblas(Blas& blas) {
  if (void* const config = ::dlsym(RTLD_DEFAULT, "openblas_get_config"))
    blas.config = reinterpret_cast<char* (*)()>(config)();
  void* const parallel = ::dlsym(RTLD_DEFAULT, "openblas_get_parallel");
  if (!parallel) return;
  constexpr Blas::Threads kinds[] = {Blas::Threads::one, Blas::Threads::own, Blas::Threads::openmp};
  const int kind = reinterpret_cast<int (*)()>(parallel)();
  if (kind >= 0 && kind < 3) blas.threads = kinds[kind];
}

}  // namespace

Blas blas_of(const std::string& file, const std::function<bool(const char*)>& has_symbol) {
  const std::string path = lower_case(file), name = path.substr(path.rfind('/') + 1);
  for (const Implementation& one : implementations)
    if (has_symbol(one.symbol) || contains(path, one.in_path)) return {one.name, file};
  if (file.empty()) return {"none", "", true};
  // The reference implementation has no function that tells its name. Its file is named after the standard.
  if (name.rfind("libblas.so", 0) == 0 || name.rfind("librefblas", 0) == 0) return {"the reference BLAS", file, true};
  Blas other{file.substr(file.rfind('/') + 1), file};
  other.known = false;
  return other;
}

Blas loaded_blas() {
  void* const product = ::dlsym(RTLD_DEFAULT, "sgemm_");
  Dl_info info{};
  std::string file;
  if (product && ::dladdr(product, &info) && info.dli_fname) file = real_file(info.dli_fname);
  // A wheel has MKL within libtorch_cpu.so, which need not export sgemm_; another BLAS of the process is not the one it
  // calls.
  if (at::hasMKL()) {
    const bool of_torch = ::dladdr(reinterpret_cast<const void*>(&at::show_config), &info) && info.dli_fname;
    return {"MKL", contains(file, "mkl") || !of_torch ? file : real_file(info.dli_fname)};
  }
  // LAPACK may bring another BLAS into the process, which nobody calls.
  Blas blas = blas_of(file, [&](const char* symbol) {
    void* const found = ::dlsym(RTLD_DEFAULT, symbol);
    return found && ::dladdr(found, &info) && info.dli_fname && real_file(info.dli_fname) == file;
  });
  if (blas.name == "OpenBLAS") ask_openblas(blas);
  return blas;
}

std::string slow_blas_advice(const Blas& blas) {
  if (!blas.slow) return "";
  if (blas.file.empty()) return "use a LibTorch that is built with a BLAS: OpenBLAS, MKL or BLIS";
  const std::string installed = openblas_beside(blas.file);
  if (installed.empty()) return fmt::format("install OpenBLAS (Debian: apt-get install {})", fast_blas_package);
  return fmt::format(
      "{} is installed, but libblas.so.3 leads elsewhere: see `update-alternatives --get-selections | grep blas` and "
      "LD_LIBRARY_PATH",
      installed);
}

bool calls_blas(const std::string& aten_operator) {
  // In place, into an output, or with a new result: addmm_, addmm. Convolutions come down to one where oneDNN computes
  // none of them.
  constexpr std::string_view names[] = {"mm",  "addmm", "bmm", "baddbmm", "addbmm", "_addmm_activation",
                                        "mv",  "addmv", "dot", "addr",    "ger",    "_slow_conv2d_forward",
                                        "vdot"};
  constexpr std::string_view space = "aten::";
  std::string_view name = aten_operator;
  if (name.substr(0, space.size()) != space) return false;
  name.remove_prefix(space.size());
  if (!name.empty() && name.back() == '_') name.remove_suffix(1);
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace triage::cli
