// What the intrinsics report: identities of functions, the epoch, what breaks a graph while capturing, and budgets.
// That they compute as Lua does is shown by the corpus.
#include "bindings/lua/semantics/intrinsics.h"

#include <doctest/doctest.h>

#include "bindings/lua/semantics/base_library.h"
#include "bindings/lua/semantics/chunk.h"
#include "tests/rewriter/scripted.h"

namespace triage::lua::testing {
namespace {

/// A state with a C function `capture(n)` that pretends a capture (0: none), `branch(n)` and `epoch()`.
LuaState state_with_controls() {
  effects() = Effects();
  LuaState state = new_state(true);
  lua_State* const L = state.get();
  lua_register(L, "capture", [](lua_State* L) {
    effects().capture = static_cast<uint64_t>(luaL_checkinteger(L, 1));
    return 0;
  });
  lua_register(L, "branch", [](lua_State* L) {
    effects().branch = static_cast<int>(luaL_checkinteger(L, 1));
    return 0;
  });
  lua_register(L, "epoch", [](lua_State* L) {
    lua_pushinteger(L, static_cast<lua_Integer>(effects().epoch));
    return 1;
  });
  lua_register(L, "id", [](lua_State* L) {
    lua_pushinteger(L, function_id(L, 1));
    return 1;
  });
  return state;
}

std::string run_in(lua_State* L, const std::string& source) {
  const std::string before = output(L);
  return finish(L, load_chunk(L, source, "@script.lua", {0, false})).substr(before.size());
}

/// What breaks while `body` runs under a capture; it sees `old`, a table, `up`, an upvalue, and `f`, a function, from
/// before.
std::vector<std::string> breaks_of(const std::string& body) {
  const LuaState state = state_with_controls();
  const std::string source =
      "local up, old = 0, {inner = {}} local function f() up = up + 1 end local function captured() " + body +
      " end capture(7) captured() capture(0)";
  CHECK(run_in(state.get(), source) == "");
  return effects().breaks;
}

using Breaks = std::vector<std::string>;

}  // namespace

TEST_CASE("closures of one function expression share an id, others differ") {
  const LuaState state = state_with_controls();
  CHECK(run_in(state.get(), R"(
    local function make() return function() end, function() end end
    local a, b = make() local c, d = make()
    function global() end local t = {} function t.x() end function t:m() end
    print(id(a) == id(c), id(b) == id(d), id(a) ~= id(b), id(make) ~= id(a), id(print))
    local seen, n = {}, 0
    for _, f in ipairs {a, b, make, global, t.x, t.m, function() end} do if not seen[id(f)] then n = n + 1 end seen[id(f)] = true end
    print(n, seen[0])
    local x, y = load("return function() end"), load("return function() end")
    print(id(x) ~= id(y), id(x()) ~= id(y()), id(x()) == id(x()), id(x) > 0))") ==
        "true\ttrue\ttrue\ttrue\t0\n7\tnil\ntrue\ttrue\ttrue\ttrue\n");
}

TEST_CASE("writes that guards may have looked at move the epoch, others do not") {
  const LuaState state = state_with_controls();
  CHECK(run_in(state.get(), R"(
    local function moved(f) local before = epoch() f() return epoch() > before end
    local a, t, shared = 1, {}, 0
    local function get() return shared end
    print(moved(function() local b = 1 b = b + 1 for i = 1, 3 do b = i end return b end))
    print(moved(function() return {1, 2}, function() end, t.x, a end))
    print(moved(function() a = 2 end), moved(function() t.x = 1 end), moved(function() new_global = 1 end), moved(function() function t.f() end end))
    print(moved(function() rawset(t, 1, 2) end), moved(function() table.insert(t, 1) end), moved(function() table.remove(t) end),
          moved(function() table.sort(t) end), moved(function() table.move({1}, 1, 1, 1, t) end), moved(function() setmetatable(t, nil) end))
    local before = epoch() shared = 1 print(epoch() > before, get())
    local u = 1 before = epoch() u = 2 print(epoch() == before, u))") ==
        "false\nfalse\ntrue\ttrue\ttrue\ttrue\ntrue\ttrue\ttrue\ttrue\ttrue\ttrue\ntrue\t1\ntrue\t2\n");
}

TEST_CASE("writes to what is older than the call break the graph") {
  CHECK(breaks_of("up = 1") == Breaks{"a write to upvalue 'up' outlives the call"});
  CHECK(breaks_of("f()") == Breaks{"a write to upvalue 'up' outlives the call"});
  CHECK(breaks_of("fresh_global = 1") == Breaks{"a write to global 'fresh_global' outlives the call"});
  const Breaks table{"a write to a table that existed before the call"};
  CHECK(breaks_of("old.x = 1") == table);
  CHECK(breaks_of("old.inner.x = 1") == table);
  CHECK(breaks_of("rawset(old, 1, 2)") == table);
  CHECK(breaks_of("table.insert(old, 1)") == table);
  CHECK(breaks_of("table.sort(old)") == table);
  CHECK(breaks_of("setmetatable(old, {})") == table);
  CHECK(breaks_of("table.move({1}, 1, 1, 1, old)") == table);
  CHECK(breaks_of("function old.f() end") == table);
  CHECK(breaks_of("local alias = {o = old} alias.o.x = 1") == table);
}

TEST_CASE("writes to what the call made are no side effects") {
  for (const char* body :
       {"local t = {} t.x = 1 t.y = {} t.y.z = 2 table.insert(t, 3) rawset(t, 1, 2) setmetatable(t, {})",
        "local t = table.pack(1, 2) t.n = 3", "local n = 0 local function count() n = n + 1 end count() count()",
        "local n = 0 local function outer() return function() n = n + 1 end end outer()()",
        "local a, b = 1, 2 local function g() a, b = b, a return function() a = a + b return function() b = a end end "
        "end g()()()",
        "local t = {{}, {x = {}}} t[2].x.y = 1 t[1][1] = 2",
        "local f = load('local n = 0 return function() n = n + 1 end')",
        "local m = {} function m.f() end function m:g() self.v = 1 end m:g()"}) {
    CAPTURE(std::string(body));
    CHECK(breaks_of(body) == Breaks{});
  }
}

TEST_CASE("a branch may not write to what is outside of it") {
  CHECK(breaks_of("local t = {} branch(1) t.x = 1 branch(0)") ==
        Breaks{"a write to a table from outside of the branch"});
  CHECK(breaks_of("local n = 0 local function arm() n = 1 end branch(1) arm() branch(0)") ==
        Breaks{"a write to upvalue 'n', a variable from outside of the branch"});
  CHECK(breaks_of("branch(1) local t = {} t.x = 1 local n = 0 local function g() n = 1 end g() branch(0)") == Breaks{});
  CHECK(breaks_of("branch(1) local t = {} branch(2) t.x = 1 branch(0)") ==
        Breaks{"a write to a table from outside of the branch"});
}

TEST_CASE("what an earlier capture made is old in the next one") {
  const LuaState state = state_with_controls();
  run_in(state.get(),
         "local kept = {} capture(1) local made = {} made.x = 1 capture(2) made.x = 2 capture(0) made.x = 3");
  CHECK(effects().breaks == Breaks{"a write to a table that existed before the call"});
}

TEST_CASE("concatenation and loading charge the memory budget first") {
  const LuaState state = state_with_controls();
  effects().budget = 100'000;
  CHECK(run_in(state.get(), "local s = 'x' for i = 1, 40 do s = s .. s end").find("out of budget") !=
        std::string::npos);
  CHECK(run_in(state.get(),
               "local t = setmetatable({}, {__concat = function(a, b) return b end}) local s = ('x'):rep(60000) return "
               "s .. s .. t .. 'a'")
            .find("out of budget") != std::string::npos);
  CHECK(run_in(state.get(), "print(pcall(load, ('x'):rep(90000) .. ' = 1'))").find("out of budget") !=
        std::string::npos);
  CHECK(run_in(state.get(), "print(load(function() return ('x'):rep(1000) end))") == "nil\tout of budget\n");
}

TEST_CASE("policies load text only") {
  const LuaState state = state_with_controls();
  effects().policy = true;
  CHECK(run_in(state.get(), "print(load(string.dump(function() end)))") ==
        "nil\tattempt to load a binary chunk (mode is 't')\n");
  CHECK(run_in(state.get(), "print(load('local _ENV = {}', '=t'))")
            .find("nil\tt:1: a policy may not declare a variable named '_ENV'") == 0);
}

TEST_CASE("load gives the environment that was set") {
  const LuaState state = state_with_controls();
  lua_State* const L = state.get();
  lua_newtable(L);
  lua_pushliteral(L, "inside");
  lua_setfield(L, -2, "where");
  set_load_environment(L);
  lua_pop(L, 1);
  CHECK(run_in(L, "print(load('return where, print')()) print(load('return where', '=x', 't', {where = 'given'})())") ==
        "inside\tnil\ngiven\n");
}

}  // namespace triage::lua::testing
