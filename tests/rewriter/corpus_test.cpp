// Every file of tests/rewriter/corpus runs twice, plain and rewritten: what it prints, errors and their lines included,
// must be the same to the byte.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "bindings/lua/semantics/chunk.h"
#include "tests/paths.h"
#include "tests/rewriter/scripted.h"

namespace triage::lua::testing {
namespace {

std::vector<std::filesystem::path> corpus() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(triage::test::source_dir() + "/tests/rewriter/corpus"))
    if (entry.path().extension() == ".lua") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Through luaL_loadfilex, which skips a byte order mark and a first line with `#`.
std::string run_plain_file(const std::filesystem::path& path) {
  effects() = Effects();
  const LuaState state = new_state(false);
  return finish(state.get(), luaL_loadfilex(state.get(), path.c_str(), "t"));
}

}  // namespace

TEST_CASE("programs do the same rewritten and not") {
  const auto files = corpus();
  CHECK(files.size() >= 25);
  for (const auto& path : files) {
    CAPTURE(path.filename().string());
    const std::string plain = run_plain_file(path);
    CHECK(!plain.empty());
    CHECK(run(read(path), "@" + path.string(), true) == plain);
  }
}

TEST_CASE("what a policy closes is closed as in plain Lua, and no more when its budget has run out") {
  const std::filesystem::path path = triage::test::source_dir() + "/tests/rewriter/corpus/closing.lua";
  effects() = Effects();
  const LuaState state = new_state(true);
  const int status = load_chunk(state.get(), read(path), ("@" + path.string()).c_str(), {0, /*policy=*/true});
  CHECK(finish(state.get(), status) == run_plain_file(path));

  constexpr const char* expired = R"(
local function closer(name) return setmetatable({}, {__close = function() print(name) end}) end
do local a <close> = closer "before" end
expire()
do local a <close> = closer "a" for _ in next, {1}, nil, closer "b" do end end
print(pcall(function() local c <close> = closer "c" error("d", 0) end)))";
  const LuaState other = new_state(true);
  lua_register(other.get(), "expire", [](lua_State*) {
    effects().expired = true;
    return 0;
  });
  CHECK(finish(other.get(), load_chunk(other.get(), expired, "@expired.lua", {0, /*policy=*/true})) ==
        "before\nfalse\td\n");
}

TEST_CASE("only the files that end in an error do") {
  for (const auto& path : corpus()) {
    CAPTURE(path.filename().string());
    const bool fails = run_plain_file(path).find("\nerror: ") != std::string::npos;
    CHECK(fails == (path.stem() == "errors"));
  }
}

}  // namespace triage::lua::testing
