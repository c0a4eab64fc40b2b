// The pages that list names have all that there are, and nothing else: scripts beside this file look.
#include "bindings/lua/engine/exec.h"
#include "tests/paths.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

TEST_CASE("docs/reference.md has a row for every name, and a name for every row") {
  const std::filesystem::path root = triage::test::source_dir();
  CHECK(triage::lua::exec_script((root / "tests/docs/reference.lua").string(), {root.string()}) == 0);
}

TEST_CASE("docs/cpp-reference.md has a row for every public name of the headers, and a name for every row") {
  const std::filesystem::path root = triage::test::source_dir();
  std::vector<std::string> arguments = {root.string()};
  for (const auto& entry : std::filesystem::directory_iterator(root / "runtime/include/triage")) {
    if (entry.path().extension() == ".h") arguments.push_back(entry.path().string());
  }
  CHECK(triage::lua::exec_script((root / "tests/docs/cpp_reference.lua").string(), arguments) == 0);
}
