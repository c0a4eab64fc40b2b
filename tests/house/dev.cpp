// `./dev COMMAND --help` is answered at once: it neither configures nor builds.
#include "tests/paths.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdio>
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
