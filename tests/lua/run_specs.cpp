// Runs every tests/lua/specs/*.lua in a trusted state of its own; each test("...", fn) in them is one check here.
// TRIAGE_SPECS=word runs those alone whose file name holds the word.
#include "bindings/lua/semantics/chunk.h"
#include "tests/lua/lua_fixture.h"
#include "tests/paths.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace triage::lua::testing {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> spec_files() {
  std::vector<fs::path> files;
  const char* word = std::getenv("TRIAGE_SPECS");
  for (const auto& entry : fs::directory_iterator(triage::test::source_dir() + "/tests/lua/specs")) {
    const bool asked = !word || entry.path().filename().string().find(word) != std::string::npos;
    if (entry.path().extension() == ".lua" && asked) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string text_field(lua_State* L, int table, const char* key) {
  lua_getfield(L, table, key);
  std::string text = lua_tostring(L, -1);
  lua_pop(L, 1);
  return text;
}

int with_traceback(lua_State* L) {
  std::string text = error_text(L, 1);
  luaL_traceback(L, L, text.c_str(), 1);
  return 1;
}

/// Runs the test in the table on top of the stack.
void run_test(lua_State* L) {
  int test = lua_gettop(L);
  std::string name = text_field(L, test, "name"), file = text_field(L, test, "file");
  lua_getfield(L, test, "line");
  auto line = static_cast<int>(lua_tointeger(L, -1));
  lua_pushcfunction(L, with_traceback);
  lua_getfield(L, test, "fn");
  bool passed = lua_pcall(L, 0, 0, -2) == LUA_OK;
  std::string message = passed ? "" : error_text(L, -1);
  INFO(name);
  if (!passed) ADD_FAIL_CHECK_AT(file.c_str(), line, message);
  CHECK_MESSAGE(passed, file << ":" << line);
  lua_settop(L, test);
}

void run_file(const fs::path& path) {
  Fixture fixture;
  in_protected_call(fixture.lua(), [&](lua_State* L) {
    std::string library = read(triage::test::source_dir() + "/tests/lua/spec.lua");
    if (luaL_loadbuffer(L, library.data(), library.size(), "@tests/lua/spec.lua") != LUA_OK) lua_error(L);
    lua_call(L, 0, 1);
    int tests = lua_gettop(L);
    ChunkOptions options;
    options.policy = false;
    std::string name = "@specs/" + path.filename().string();
    if (load_chunk(L, read(path), name.c_str(), options) != LUA_OK) lua_error(L);
    lua_call(L, 0, 0);
    auto count = static_cast<lua_Integer>(lua_rawlen(L, tests));
    CHECK_MESSAGE(count > 0, path.string() << " holds no test");
    for (lua_Integer i = 1; i <= count; ++i) {
      lua_rawgeti(L, tests, i);
      run_test(L);
      lua_pop(L, 1);
    }
  });
  lua_gc(fixture.lua(), LUA_GCCOLLECT);
}

}  // namespace

TEST_CASE("Lua specs") {
  const std::vector<fs::path> files = spec_files();
  CHECK_MESSAGE(!files.empty(), "no spec has such a name");
  for (const fs::path& path : files) {
    INFO(path.filename().string());
    try {
      run_file(path);
    } catch (const Error& error) {
      FAIL_CHECK(path.filename().string() << ": " << error.what() << "\n" << error.traceback());
    }
  }
}

}  // namespace triage::lua::testing
