// Policies that call what they have with values of every kind: through the whole binding layer, no call ends the
// process or hangs.
#include "bindings/lua/engine/script_state.h"
#include "bindings/lua/sandbox/sandbox.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/state/protected.h"
#include "runtime/operators/contract.h"
#include "tests/attacks/forked.h"
#include "tests/paths.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

namespace triage::lua::testing {
namespace {

StateOptions policy_options() {
  StateOptions options;
  options.path = "policy.lua";
  options.limits.instructions = 200'000'000;
  options.limits.seconds = 60.0;
  options.limits.script_bytes = 64u << 20;
  options.limits.tensor_bytes = 64u << 20;
  return options;
}

std::string source() {
  std::ifstream file(test::source_dir() + "/tests/attacks/random_calls.lua");
  return {std::istreambuf_iterator<char>(file), {}};
}

void push_operator_names(lua_State* L) {
  lua_newtable(L);
  lua_Integer count = 0;
  std::string last;
  for (const auto& [name, overload] : operators::all_contracts()) {
    if (name == last || name.rfind("aten::", 0) != 0) continue;
    last = name;
    lua_pushlstring(L, name.data() + 6, name.size() - 6);
    lua_rawseti(L, -2, ++count);
  }
}

const Say* told = nullptr;
int tell(lua_State* L) {
  (*told)("call " + std::to_string(lua_tointeger(L, 1)) + ", " + luaL_optstring(L, 2, "?"));
  return 0;
}

/// Runs the script; how many of its calls gave a result, or the error that ended it.
std::string run_calls(int64_t seed, int64_t count, const Say& say) {
  told = &say;
  const std::unique_ptr<ScriptState> state = make_script_state(policy_options());
  std::string result;
  Budget budget(*state);
  try {
    in_protected_call(state->lua(), [&](lua_State* L) {
      ChunkOptions options;
      state->push_environment();
      options.env = lua_gettop(L);
      if (load_chunk(L, source(), "@random_calls.lua", options) != LUA_OK) lua_error(L);
      lua_pushinteger(L, seed);
      lua_pushinteger(L, count);
      push_operator_names(L);
      lua_pushcfunction(L, tell);
      lua_call(L, 4, 1);
      result = "gave " + std::string(luaL_tolstring(L, -1, nullptr));
    });
  } catch (const std::exception& error) {
    return std::string("ended: ") + error.what();
  }
  return result;
}

int64_t setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoll(text, nullptr, 10) : otherwise;
}

}  // namespace

TEST_CASE("attacks: random calls from a policy end in a result or an error") {
  // TRIAGE_RANDOM_CALLS: how many runs, for a longer search by hand; TRIAGE_RANDOM_SEED: the first.
  const int64_t runs = setting("TRIAGE_RANDOM_CALLS", 12), first = setting("TRIAGE_RANDOM_SEED", 1);
  int64_t results = 0, whole_runs = 0;
  for (int64_t seed = first; seed < first + runs; ++seed) {
    const Ended ended = in_fork([&](const Say& say) { return run_calls(seed, 300, say); }, 40);
    INFO("seed " << seed << ", at " << ended.stage << ": " << ended.text);
    CHECK(ended.death == "");
    if (ended.text.rfind("gave ", 0) == 0) {
      ++whole_runs;
      results += std::strtoll(ended.text.c_str() + 5, nullptr, 10);
    } else {
      CHECK_MESSAGE(ended.text.find("budget") != std::string::npos, ended.text);
    }
    if (std::getenv("TRIAGE_RANDOM_CALLS")) MESSAGE("seed " << seed << ": " << ended.text.substr(0, 200));
  }
  MESSAGE(results << " of " << 300 * whole_runs << " calls gave a result, in " << whole_runs << " of " << runs
                  << " runs");
  CHECK(2 * whole_runs > runs);
  CHECK(results > 30 * whole_runs);  // one in ten: so that some get beyond the checks of their arguments
}

}  // namespace triage::lua::testing
