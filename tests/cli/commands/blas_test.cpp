// Which BLAS LibTorch computes with: what `triage doctor` and `triage bench` say of it.
#include "bindings/cli/commands/blas.h"
#include "tests/cli/program.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace {

namespace fs = std::filesystem;
using triage::cli::Blas;
using triage::cli::blas_of;

Blas blas(const std::string& file, const std::set<std::string>& symbols = {}) {
  return blas_of(file, [&](const char* symbol) { return symbols.count(symbol) == 1; });
}

/// The finding of `triage doctor` on BLAS, with the libraries of `folder` first.
nlohmann::json finding_with(const TemporaryFolder& scene, const std::string& folder) {
  const Ran ran = shell(scene, "LD_LIBRARY_PATH=" + shell_quoted(folder) + " \"$triage\" doctor --json");
  CAPTURE(ran.err);
  const nlohmann::json report = ran.json();
  for (const auto& finding : report["findings"])
    if (finding["name"] == "BLAS") return finding;
  FAIL("no finding on BLAS: ", ran.out);
  return {};
}

/// The folder under /usr/lib where Debian has this implementation; empty: it is not installed.
std::string folder_of(const std::string& implementation) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/usr/lib", error)) {
    const fs::path folder = entry.path() / implementation;
    if (fs::exists(folder / "libblas.so.3", error)) return folder.string();
  }
  return "";
}

/// Whether this LibTorch takes its BLAS from a library of its own, as Debian's does.
bool takes_any_blas(const nlohmann::json& finding) {
  return finding["facts"]["library"].get<std::string>().find("/libblas.so") != std::string::npos;
}

}  // namespace

TEST_CASE("D21: a BLAS is known by what it exports, or by its path; only the reference implementation is slow") {
  const std::string folder = "/usr/lib/x86_64-linux-gnu/";
  const std::string standard = folder + "blas/libblas.so.3.11.0";
  CHECK(blas(standard).name == "the reference BLAS");
  CHECK(blas(standard).slow);
  CHECK(blas("/usr/lib/librefblas.so.3").slow);
  CHECK(blas(folder + "openblas-openmp/libblas.so.3").name == "OpenBLAS");
  CHECK(blas(folder + "blis-openmp/libblas.so.3").name == "BLIS");
  CHECK(blas(folder + "atlas/libblas.so.3.10.3").name == "ATLAS");
  CHECK(blas("/opt/intel/lib/libmkl_rt.so.2").name == "MKL");
  // A file with the standard's name may be any of them.
  CHECK(blas("/opt/lib/libblas.so.3", {"openblas_get_config"}).name == "OpenBLAS");
  CHECK(blas("/opt/lib/libblas.so.3", {"mkl_get_version"}).name == "MKL");
  for (const char* file : {"openblas-openmp/libblas.so.3", "blis-openmp/libblas.so.3", "atlas/libblas.so.3.10.3"}) {
    CHECK_FALSE(blas(folder + file).slow);
    CHECK(triage::cli::slow_blas_advice(blas(folder + file)).empty());
  }
  const Blas other = blas("/opt/lib/libquick.so.1");
  CHECK(other.name == "libquick.so.1");
  CHECK_FALSE(other.known);
  CHECK_FALSE(other.slow);
  CHECK(blas("").slow);
  CHECK(has(slow_blas_advice(blas("")), "a LibTorch that is built with a BLAS"));
}

TEST_CASE("D21: what to do about a slow BLAS, and where OpenBLAS is installed but not used") {
  const TemporaryFolder scene;
  fs::create_directories(scene.path() / "blas");
  const std::string file = (scene.path() / "blas/libblas.so.3.11.0").string();
  CHECK(has(slow_blas_advice(blas(file)), "apt-get install libopenblas0-openmp"));
  fs::create_directories(scene.path() / "openblas-pthread");
  write_bytes(scene.path() / "openblas-pthread/libblas.so.3", "");
  CHECK(has(slow_blas_advice(blas(file)), "openblas-pthread/libblas.so.3 is installed, but"));
  CHECK(!has(slow_blas_advice(blas(file)), "apt-get install"));
}

TEST_CASE("D21: matrix products call BLAS, in place too; what works on single values does not") {
  using triage::cli::calls_blas;
  for (const char* name : {"aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm", "aten::addmv_", "aten::dot"}) {
    CAPTURE(name);
    CHECK(calls_blas(name));
  }
  for (const char* name : {"aten::mul", "aten::linear", "mm", "triage::mm", "aten::", "aten::_", ""}) {
    CAPTURE(name);
    CHECK_FALSE(calls_blas(name));
  }
}

TEST_CASE("D21: doctor names the BLAS of this process, and warns of the reference one") {
  const TemporaryFolder scene;
  const nlohmann::json here = finding_with(scene, "");
  CHECK(fs::exists(here["facts"]["library"].get<std::string>()));
  CHECK((here["severity"] == "warning") == here["facts"]["slow"]);
  if (!takes_any_blas(here)) return;
  if (const std::string reference = folder_of("blas"); !reference.empty()) {
    const nlohmann::json slow = finding_with(scene, reference);
    CHECK(slow["severity"] == "warning");
    CHECK(slow["facts"]["name"] == "the reference BLAS");
    CHECK(has(slow["text"], "10 to 30 times as long"));
    CHECK(has(slow["advice"], "OpenBLAS"));
  }
  if (const std::string openmp = folder_of("openblas-openmp"); !openmp.empty()) {
    const nlohmann::json fast = finding_with(scene, openmp);
    CHECK(fast["severity"] == "ok");
    CHECK(fast["facts"]["name"] == "OpenBLAS");
    CHECK(fast["facts"]["threads"] == "OpenMP");
  }
  if (const std::string own = folder_of("openblas-pthread"); !own.empty()) {
    const nlohmann::json fast = finding_with(scene, own);
    CHECK(fast["severity"] == "note");
    CHECK(has(fast["text"], "threads of its own"));
  }
}

TEST_CASE("bench says once that a policy's products run on the reference BLAS, and nothing where it has none") {
  const TemporaryFolder scene;
  write_bytes(scene / "product.lua", "return function(z) return torch.mm(z, z:t()) + torch.mm(z, z:t()) end\n");
  write_bytes(scene / "sum.lua", "return function(z) return z + 1 end\n");
  const auto bench = [&](const std::string& folder, const std::string& policy, const std::string& options) {
    const Ran ran = shell(scene, "LD_LIBRARY_PATH=" + shell_quoted(folder) + " \"$triage\" bench " + policy +
                                     " --input z=ones:4x4 --batches 4 --seconds 0 " + options);
    CAPTURE(ran.err);
    REQUIRE(ran.status == 0);
    return ran;
  };
  const bool takes_any = takes_any_blas(finding_with(scene, ""));
  if (const std::string reference = folder_of("blas"); takes_any && !reference.empty()) {
    const Ran slow = bench(reference, "product.lua", "");
    CHECK(count_of(slow.out, "slow BLAS: ") == 1);
    CHECK(has(slow.out, "aten::mm of this policy runs on the reference BLAS ("));
    CHECK(has(bench(reference, "product.lua", "--json").json()["slow_blas"], "OpenBLAS"));
    CHECK(bench(reference, "sum.lua", "--json").json()["slow_blas"].is_null());
  }
  if (const std::string openmp = folder_of("openblas-openmp"); takes_any && !openmp.empty()) {
    CHECK(bench(openmp, "product.lua", "--json").json()["slow_blas"].is_null());
    CHECK(!has(bench(openmp, "product.lua", "").out, "BLAS"));
  }
}
