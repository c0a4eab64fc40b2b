// docs/reference.md names all that there is, and nothing else: tests/docs/reference.lua looks.
#include "bindings/lua/engine/exec.h"
#include "tests/paths.h"

#include <doctest/doctest.h>

#include <filesystem>

TEST_CASE("docs/reference.md has a row for every name, and a name for every row") {
  const std::filesystem::path root = triage::test::source_dir();
  CHECK(triage::lua::exec_script((root / "tests/docs/reference.lua").string(), {root.string()}) == 0);
}
