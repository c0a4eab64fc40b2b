// The libraries that this process has loaded: triage, LibTorch, BLAS, OpenMP, Lua.
#include <ATen/Context.h>
#include <ATen/Version.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>
#include <omp.h>
#include <torch/version.h>
#include <triage/version.h>

#include <lua.hpp>
#include <memory>
#include <set>
#include <string_view>

#include "bindings/cli/commands/blas.h"
#include "bindings/cli/commands/doctor/finding.h"
#include "bindings/cli/commands/version.h"

namespace triage::cli::doctor {
namespace {

/// Files of this process whose name begins with one of `names`.
std::set<std::string> loaded_libraries(const std::vector<std::string>& names) {
  struct LibrarySearch {
    const std::vector<std::string>& names;
    std::set<std::string> found;
  } search{names, {}};
  const auto visit = [](dl_phdr_info* info, size_t, void* data) {
    auto& [wanted, found] = *static_cast<LibrarySearch*>(data);
    const std::string_view file = info->dlpi_name ? info->dlpi_name : "";
    const std::string_view name = file.substr(file.rfind('/') + 1);
    for (const std::string& start : wanted)
      if (name.substr(0, start.size()) == start) found.emplace(file);
    return 0;
  };
  ::dl_iterate_phdr(visit, &search);
  return search.found;
}

/// Whether an error of Lua unwinds C++ frames: one compiled as C jumps over them, and what they hold is lost.
bool lua_errors_unwind() {
  static bool unwound;
  unwound = false;
  const std::unique_ptr<lua_State, decltype(&lua_close)> state(luaL_newstate(), lua_close);
  if (!state) return true;  // no memory: nothing is known
  lua_pushcfunction(state.get(), [](lua_State* L) -> int {
    struct Frame {
      ~Frame() { unwound = true; }
    } const frame;
    return luaL_error(L, "probe");
  });
  lua_pcall(state.get(), 0, 0, 0);
  return unwound;
}

const char* name_of(Blas::Threads threads) {
  switch (threads) {
    case Blas::Threads::one:
      return "one";
    case Blas::Threads::own:
      return "own";
    case Blas::Threads::openmp:
      return "OpenMP";
    case Blas::Threads::unknown:
      break;
  }
  return "unknown";
}

}  // namespace

DoctorFinding check_triage() {
  DoctorFinding finding{"triage", Severity::fine, fmt::format("{}, built by {}", version(), built_by()), "", {}};
  finding.facts = {{"version", version()}, {"compiler", built_by()}};
#ifdef TRIAGE_ASSERTIONS
  finding.severity = Severity::note;
  finding.text += ", with assertions: slower than a release";
#endif
  return finding;
}

DoctorFinding check_torch() {
  const std::string running = torch_release(), library = torch_library();
  DoctorFinding finding{"LibTorch",
                        Severity::fine,
                        fmt::format("{}, CXX11 ABI {}\n{}", running, _GLIBCXX_USE_CXX11_ABI, library),
                        "",
                        {}};
  finding.facts = {{"version", running},
                   {"headers", TORCH_VERSION},
                   {"library", library},
                   {"cxx11_abi", _GLIBCXX_USE_CXX11_ABI},
                   {"build", at::show_config()}};
  if (running != TORCH_VERSION) {
    finding.severity = Severity::error;
    finding.text += fmt::format("\ntriage was built with the headers of {}", TORCH_VERSION);
    finding.advice =
        "build triage again with this LibTorch, or take the path of the other one out of LD_LIBRARY_PATH and "
        "LD_PRELOAD";
  }
  return finding;
}

DoctorFinding check_blas() {
  using Threads = Blas::Threads;
  const Blas blas = loaded_blas();
  DoctorFinding finding{"BLAS", Severity::fine, fmt::format("{}\n{}", blas.name, blas.file), "", {}};
  if (!blas.config.empty()) finding.text = fmt::format("{}\n{}", blas.config, blas.file);
  finding.facts = {{"name", blas.name},   {"library", blas.file},  {"slow", blas.slow},
                   {"known", blas.known}, {"config", blas.config}, {"threads", name_of(blas.threads)}};
  if (blas.slow) {
    finding.severity = Severity::warning;
    finding.text += "\nmatrix products take 10 to 30 times as long as with OpenBLAS, on one thread";
    finding.advice = slow_blas_advice(blas);
  } else if (!blas.known) {
    finding.severity = Severity::note;
    finding.text += "\ntriage does not know this library, so it cannot tell whether matrix products are fast";
  } else if (blas.threads == Threads::own) {
    finding.severity = Severity::note;
    finding.text += "\nit has threads of its own: at::set_num_threads and --threads do not change their number";
    finding.advice =
        fmt::format("for one number of threads, take the OpenBLAS that uses OpenMP (Debian: {})", fast_blas_package);
  } else if (blas.threads == Threads::one) {
    finding.severity = Severity::note;
    finding.text += "\nit computes a matrix product on one thread";
    finding.advice =
        fmt::format("for several threads, take the OpenBLAS that uses OpenMP (Debian: {})", fast_blas_package);
  }
  return finding;
}

DoctorFinding check_openmp() {
  const bool torch_has = at::hasOpenMP();
  const std::set<std::string> libraries = loaded_libraries({"libgomp", "libomp", "libiomp5"});
  DoctorFinding finding{"OpenMP", Severity::fine, fmt::format("{}", fmt::join(libraries, "\n")), "", {}};
  finding.facts = {{"libtorch_has_openmp", torch_has}, {"libraries", libraries}};
  if (!torch_has) {
    finding.severity = Severity::warning;
    finding.text = "this LibTorch is built without OpenMP";
    finding.advice = "use a LibTorch with OpenMP: without it, loops and operators run on one thread";
  } else if (libraries.size() > 1) {
    finding.severity = Severity::warning;
    finding.text +=
        "\nseveral OpenMP libraries are loaded: each starts its own threads, and `OMP_NUM_THREADS` counts per library";
    finding.advice = "link one of them; take the others out of LD_PRELOAD and LD_LIBRARY_PATH";
  }
  return finding;
}

DoctorFinding check_lua() {
  const std::string release = lua_release(), library = lua_library();
  DoctorFinding finding{"Lua", Severity::fine, fmt::format("{}\n{}", release, library), "", {}};
  const bool unwinds = lua_errors_unwind();
  finding.facts = {
      {"version", release}, {"headers", &LUA_RELEASE[4]}, {"library", library}, {"errors_unwind", unwinds}};
  if (!unwinds) {
    finding.severity = Severity::error;
    finding.text += "\nit is compiled as C: its errors jump over C++ code, which then leaks or crashes";
    finding.advice =
        "install Lua compiled as C++ (Debian: liblua5.4-0, file liblua5.4-c++.so.0), and see that it is the one found "
        "first";
  }
  return finding;
}

}  // namespace triage::cli::doctor
