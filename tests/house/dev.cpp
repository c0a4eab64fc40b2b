// `./dev COMMAND --help` is answered at once: it neither configures nor builds. docs/versions.md says what the build takes. And docs/versions.md says what the build asks for.
#include "tests/paths.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

namespace {

std::string printed_by(const std::string& arguments) {
  const std::string command = "timeout 20 '" + triage::test::source_dir() + "/dev' " + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe);
  std::string text;
  std::array<char, 4096> part;
  for (size_t size; (size = std::fread(part.data(), 1, part.size(), pipe)) > 0;) text.append(part.data(), size);
  CHECK(::pclose(pipe) == 0);
  return text;
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
  names(found("bindings/python/pyproject.toml", "requires-python = \">=([0-9.]+)\"") +
        " and newer, where the PyTorch has them");
  names("`find_package(triage " + found("CMakeLists.txt", "VERSION ([0-9]+\\.[0-9]+)\\.[0-9]+ LANGUAGES") + ")`");
}
