// `./dev COMMAND --help` is answered at once: it neither configures nor builds. An OpenBLAS that cannot be installed is
// a warning. docs/versions.md says what the build takes.
#include "tests/paths.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>

namespace {

std::string printed_by_command(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe);
  std::string text;
  std::array<char, 4096> part;
  for (size_t size; (size = std::fread(part.data(), 1, part.size(), pipe)) > 0;) text.append(part.data(), size);
  CHECK(::pclose(pipe) == 0);
  return text;
}

std::string printed_by(const std::string& arguments) {
  return printed_by_command("timeout 20 '" + triage::test::source_dir() + "/dev' " + arguments + " 2>&1");
}

/// The function `want_fast_blas` of ./dev, twice, where libblas.so.3 leads to `library` and nothing can be installed.
std::string wants_fast_blas(const std::string& library) {
  return printed_by_command(
      "bash -c 'set -euo pipefail; root=$(mktemp -d); trap \"rm -r $root\" EXIT; say() { echo \"$*\"; }\n"
      "readlink() { echo " +
      library +
      "; }; may_install() { true; }; missing_packages() { echo \"$@\"; }\n"
      "apt_install() { echo \"tried $*\"; return 1; }\n"
      "source <(sed -n \"/^want()/,/^}/p; /^want_fast_blas()/,/^}/p\" " +
      triage::test::source_dir() + "/dev); want_fast_blas; want_fast_blas; echo goes on' 2>&1");
}

}  // namespace

TEST_CASE("./dev COMMAND --help is the help of ./dev") {
  const std::string help = printed_by("help");
  CHECK(help.rfind("usage: ./dev COMMAND", 0) == 0);
  for (const char* call :
       {"test --help", "--torch system demo -h", "bench --help", "install --help", "build x --help"}) {
    CAPTURE(call);
    CHECK(printed_by(call) == help);
  }
}

TEST_CASE("docs/versions.md names the versions that the build and its tests take") {
  const auto text_of = [](const char* path) {
    std::ifstream file(triage::test::source_dir() + "/" + path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const auto found = [&](const char* path, const char* pattern) {
    std::smatch match;
    const std::string text = text_of(path);
    REQUIRE_MESSAGE(std::regex_search(text, match, std::regex(pattern)), std::string(path));
    return match[1].str();
  };
  const std::string page = text_of("docs/versions.md");
  const auto names = [&](const std::string& text) { CHECK_MESSAGE(page.find(text) != std::string::npos, text); };
  names("and " + found("dev", "torch_version=([0-9]+\\.[0-9]+)") + " (the wheel of PyTorch, CPU)");
  names("| CMake | " + found("CMakeLists.txt", "cmake_minimum_required\\(VERSION ([0-9.]+)\\)") + " |");
  names(found("bindings/python/pyproject.toml.in", "requires-python = \">=([0-9.]+)\"") +
        " and newer, where the PyTorch has them");
  names("`find_package(triage " + found("CMakeLists.txt", "VERSION ([0-9]+\\.[0-9]+)\\.[0-9]+ LANGUAGES") + ")`");
}

TEST_CASE("./dev: an OpenBLAS that cannot be installed is a warning, once a day; a BLAS that is fast stays") {
  const std::string text = wants_fast_blas("/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0");
  CAPTURE(text);
  CHECK(text.find("tried libopenblas0-openmp\ngoing on without libopenblas0-openmp\n") != std::string::npos);
  CHECK(text.find("tried") == text.rfind("tried"));
  CHECK(text.find("triage doctor says what to do") != std::string::npos);
  CHECK(text.find("goes on\n") != std::string::npos);
  for (const char* fast : {"/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3", "/opt/mkl/libmkl_rt.so.2"})
    CHECK(wants_fast_blas(fast) == "goes on\n");
}

TEST_CASE(
    "./dev matrix: one run of the tests for each LibTorch and compiler, and a table; one that fails does not end it") {
  const std::string script =
      "set -euo pipefail; unset CXX; root=$(mktemp -d); trap \"rm -r $root\" EXIT; say() { :; }\n"
      "wrong_use() { echo \"$*\"; exit; }\n"
      "cat >$root/dev <<\"END\"\n"
      "#!/bin/bash\necho ${CXX:-c++} $*; [[ $3 != 2.14.1 ]] || { echo 4 passed, 1 failed; exit 1; }\n"
      "[[ $3 != 1.0.0 ]] || exit 1; echo 5 passed, 0 failed\nEND\n"
      "chmod +x $root/dev; source <(sed -n \"/^command_matrix()/,/^}/p\" " +
      triage::test::source_dir() +
      "/dev)\n"
      "command_matrix system 2.14.1 1.0.0 clang++-14:2.13.0 | sed \"s/  [0-9]* s$//\" || true\n"
      "cat $root/build/matrix/system.log; head -n 1 $root/build/matrix/clang*; command_matrix 2.14";
  CHECK(printed_by_command("bash -c '" + script + "' 2>&1") ==
        "system                   5 passed, 0 failed\n"
        "2.14.1                   4 passed, 1 failed\n"
        "1.0.0                    no test ran\n"
        "clang++-14:2.13.0        5 passed, 0 failed\n"
        "c++ test --torch system --torch-dependent\n5 passed, 0 failed\n"
        "clang++-14 test --torch 2.13.0 --torch-dependent\n"
        "matrix takes items such as system, 2.14.1 and clang++-14:2.14.1; got 2.14\n");
}

TEST_CASE("./dev --torch arm64: what an emulator cannot run is refused, and the tests that it runs are there") {
  const std::string dev = triage::test::source_dir() + "/dev";
  CHECK(printed_by_command("timeout 20 '" + dev + "' bench --torch arm64 2>&1 || true")
            .find("is for demo, test, build") != std::string::npos);
  std::ifstream file(dev);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const size_t begin = text.find("arm64_programs=(") + 16;
  std::istringstream names(text.substr(begin, text.find(')', begin) - begin));
  int programs = 0;
  for (std::string name; names >> name; ++programs) {
    CAPTURE(name);
    CHECK(std::filesystem::is_directory(triage::test::source_dir() + "/tests/" + name.substr(5)));
  }
  CHECK(programs >= 10);
}

TEST_CASE("./dev --torch VERSION: an environment and a build folder for each version of PyTorch") {
  const std::string script =
      "set -euo pipefail; root=$(mktemp -d); trap \"rm -r $root\" EXIT; torch_version=2.13.0\n"
      "torch_of_python() { echo \"torch of $1\"; }; die() { echo \"$*\"; exit; }\n"
      "for version in 2.13.0 2.14.1; do\n"
      "  folder=$root/build/venv; [[ $version == 2.13.0 ]] || folder+=-$version\n"
      "  mkdir -p \"$folder\"; touch \"$folder/.torch-$version\"\n"
      "done\n"
      "source <(sed -n \"/^make_wheel_environment()/,/^}/p; /^choose_torch()/,/^}/p\" " +
      triage::test::source_dir() +
      "/dev)\n"
      "for choice in wheel 2.13.0 2.14.1; do choose_torch $choice; echo \"$leg ${python#\"$root\"}\"; done\n"
      "choose_torch 2.14";
  const std::string text = printed_by_command("bash -c '" + script + "' 2>&1");
  CHECK(
      text ==
      "wheel /build/venv/bin/python\nwheel /build/venv/bin/python\ntorch-2.14.1 /build/venv-2.14.1/bin/python\n"
      "--torch 2.14: no such folder (and neither `system`, nor `wheel`, nor `arm64`, nor a version such as 2.14.1)\n");
}
