// Nothing that a script or a host passes to C++ makes it overrun Lua's stack: long lists of arguments, options, results, inputs
// and upvalues, deep tables, and a stack that is nearly full. On a Lua that checks its stack (`./dev sanitize lua`) a push
// without room ends the program where it happens.
#include "tests/lua/lua_fixture.h"

#include "bindings/lua/loading/chunk.h"
#include "tests/paths.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace triage::lua::testing {
namespace {

std::string read_test_file(const std::string& name) {
  std::ifstream file(triage::test::source_dir() + "/tests/lua/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

lua_Integer run_file(Fixture& fixture, const std::string& name) {
  lua_Integer result = 0;
  in_protected_call(fixture.lua(), [&](lua_State* L) {
    ChunkOptions options;
    options.policy = fixture.context().sandboxed;
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    if (load_chunk(L, read_test_file(name), ("@" + name).c_str(), options) != LUA_OK) lua_error(L);
    lua_call(L, 0, 1);
    result = lua_tointeger(L, -1);
  });
  return result;
}

}  // namespace

TEST_CASE("stack: every function takes long lists of arguments, options and results, or refuses them") {
  Fixture fixture;
  CHECK(run_file(fixture, "long_lists.lua") > 50'000);
}

}  // namespace triage::lua::testing
