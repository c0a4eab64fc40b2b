// Once a budget has run out, nothing of a script goes on: its to-be-closed variables, closing values of loops, message
// handlers, metamethods of errors. Where script code would begin, it is stopped, and that costs time of its own: so the
// tests count how often. Lua has at most 200 calls of C inside each other; each may catch the error once.
//
// TRIAGE_CLOSERS=N runs N random programs, TRIAGE_CLOSERS_SEED=N begins elsewhere.
#include "bindings/lua/semantics/chunk.h"
#include "tests/lua/lua_fixture.h"

#include <doctest/doctest.h>
#include <triage/error.h>

#include <cstdlib>
#include <random>
#include <string>

namespace triage::lua::testing {
namespace {

constexpr size_t most_stops = 300;

/// How often a script was stopped whose budget of instructions ran out; 0 where it did not.
size_t stops_of(const std::string& source) {
  StateOptions options;
  options.path = "policy.lua";
  options.limits = {100'000, 0.0, 256u << 20, 0};
  options.print = [](const std::string&) {};
  Fixture policy(options);
  size_t stops = 0;
  try {
    ScriptState& state = policy.state();
    const Budget budget(state);
    in_protected_call(state.lua(), [&](lua_State* L) {
      push_chunk(state, source, "@policy.lua");
      lua_call(L, 0, 0);
    });
    stops = state.context().stopped;
  } catch (const Error&) {
    stops = policy.context().stopped;
  }
  return stops;
}

/// Each would go on for long when its budget has run out.
const char* const programs[] = {
    // a stack full of variables, each of which fills it again
    "local f local o = setmetatable({}, {__close = function() f() end}) f = function() local a <close> = o f() end f()",
    "local f local o = setmetatable({}, {__close = function() pcall(f) end}) f = function() local a <close> = o f() "
    "end f()",
    "local o = setmetatable({}, {__close = function() while true do end end}) "
    "local function f() local a <close>, b = o, 1 f() end pcall(f) while true do end",
    // many in each function
    "local o = setmetatable({}, {__close = function() while true do end end}) local function f() local a <close> = o "
    "local b <close> = o local c <close> = o local d <close> = o local e <close> = o f() end f()",
    // closers that leave more to be closed
    "local mt = {} mt.__close = function() local a <close> = setmetatable({}, mt) local b <close> = setmetatable({}, "
    "mt) "
    "end setmetatable(mt, mt) local a <close> = setmetatable({}, mt) while true do end",
    "local mt = {} mt.__close = function() local a <close> = setmetatable({}, mt) error('again') end "
    "local function f() local a <close> = setmetatable({}, mt) f() end while true do pcall(f) end",
    // closing values of loops
    "local o = setmetatable({}, {__close = function() while true do end end}) "
    "local function f() for _ in next, {1}, nil, o do f() end end f()",
    "local o = setmetatable({}, {__close = function() while true do end end}) "
    "local function four() return next, {1}, nil, o end local function f() for _ in four() do f() end end pcall(f) f()",
    // closers that are set, or exchanged, behind the declaration
    "local mt = {__close = function() end} local o = setmetatable({}, mt) local function f() local a <close> = o f() "
    "end "
    "mt.__close = function() while true do end end f()",
    "local o = setmetatable({}, {__close = function() end}) local function f() local a <close> = o "
    "setmetatable(o, {__close = function() while true do end end}) f() end f()",
    "local o = setmetatable({}, {__close = setmetatable({}, {__call = function() while true do end end})}) "
    "local function f() local a <close> = o f() end f()",
    "local o = setmetatable({}, {__close = pcall, __call = function() while true do end end}) "
    "local function f() local a <close> = o f() end f()",
    // errors on the way
    "local o = setmetatable({}, {__close = function(_, e) error(e, 0) end}) "
    "local function f() local a <close> = o f() end while true do pcall(f) end",
    "local o = setmetatable({}, {__close = function(_, e) error({e}) end}) "
    "local function f() local a <close> = o while true do end end while true do pcall(f) end",
    "local function h(e) local a <close> = setmetatable({}, {__close = h}) error(e) end "
    "local function f() return xpcall(f, h) end while true do f() end",
    "local function f() return 1 + f() end while true do xpcall(f, function() while true do end end) end",
    "local function h() return pcall(error, h) end while true do xpcall(h, h) xpcall(error, h) end",
    "local e = setmetatable({}, {__tostring = function(e) return tostring(e) end}) "
    "while true do pcall(error, e) pcall(tostring, e) end",
    "local function f(n) if n == 0 then return end pcall(f, n - 1) pcall(f, n - 1) end while true do f(190) end",
    // closers in functions of the library that call back
    "local o = setmetatable({}, {__close = function() while true do end end}) "
    "local function f() local a <close> = o table.sort({3, 2, 1}, f) end while true do pcall(f) end",
    "local o = setmetatable({}, {__close = function() ('a'):rep(1000):gsub('a', function() local s = ('x'):rep(9999) "
    "end) "
    "end}) local function f() local a <close> = o ('aaa'):gsub('a', f) end while true do pcall(f) end",
    "local o = setmetatable({}, {__close = function() local s = '' while true do s = s .. 'x' end end}) "
    "local function f() local a <close> = o f() end f()",
    "local c = load([[local o = setmetatable({}, {__close = function() while true do end end}) "
    "local function f() local a <close> = o f() end f()]]) while true do pcall(c) end",
};

/// A policy of natural Lua, whose `if`s are closed, too.
constexpr const char* natural =
    "--!tensor\nlocal function f(z) if z:amax(-1) > 0 then z = f(z) + 1 end return z end f(torch.ones({4, 3}))";

/// Programs of closers, loops, handlers and recursion, one inside the other, that do not end.
class RandomProgram {
 public:
  explicit RandomProgram(uint64_t seed) : random_(seed) {}

  std::string text() {
    std::string text = "local n, o, p = 0\nlocal f, g, h\n";
    for (const char* const name : {"f", "g", "h"}) text += std::string(name) + " = function(e) " + block(3) + " end\n";
    text += "o = setmetatable({}, {__close = " + pick({"f", "g", "h"}) + ", __call = f, __tostring = g})\n";
    text += "p = setmetatable({}, {__close = function(_, e) " + block(2) + " end, __index = h})\n";
    return text + "while true do pcall(function() " + block(3) + "end) pcall(f) xpcall(g, h) end";
  }

 private:
  std::string pick(std::initializer_list<const char*> texts) { return texts.begin()[random_() % texts.size()]; }

  std::string block(int depth) {
    std::string text;
    for (size_t i = 0, count = 1 + random_() % 3; i < count; ++i) text += statement(depth) + " ";
    return text;
  }

  std::string statement(int depth) {
    if (depth == 0)
      return pick({"n = n + 1", "f()", "g()", "pcall(f)", "pcall(h)", "xpcall(f, g)", "local _ = p.x",
                   "pcall(tostring, o)", "local s = ('x'):rep(n % 100)", "pcall(o)"});
    const std::string inner = block(depth - 1);
    switch (random_() % 8) {
      case 0:
        return "do local a <close> = " + pick({"o", "p", "nil"}) + " " + inner + "end";
      case 1:
        return "for k in next, {1, 2}, nil, " + pick({"o", "p"}) + " do " + inner + "end";
      case 2:
        return "pcall(function() " + inner + "end)";
      case 3:
        return "xpcall(function() " + inner + "end, " + pick({"f", "g", "h", "tostring"}) + ")";
      case 4:
        return "if n % 2 == 0 then " + inner + "else error(" + pick({"o", "'e'", "n"}) + ") end";
      case 5:
        return "table.sort({2, 1}, function() " + inner + "return false end)";
      case 6:
        return "getmetatable(" + pick({"o", "p"}) + ").__close = function() " + inner + "end";
      default:
        return "do local a <close> = setmetatable({}, {__close = function() " + inner + "end}) " + block(depth - 1) +
               "end";
    }
  }

  std::mt19937_64 random_;
};

uint64_t asked(const char* name, uint64_t usual) {
  const char* const text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : usual;
}

}  // namespace

TEST_CASE("budgets: what a script left to be closed or handled does not go on when its budget has run out") {
  for (const char* const program : programs) {
    const size_t stops = stops_of(program);
    CHECK_MESSAGE((stops > 0 && stops <= most_stops), "stopped " << stops << " times: " << program);
  }
}

TEST_CASE("budgets: the branches of natural Lua are not closed one by one when the budget has run out") {
  const size_t stops = stops_of(natural);
  CHECK_MESSAGE((stops > 0 && stops <= most_stops), "stopped " << stops << " times");
}

TEST_CASE("budgets: random programs of closers and handlers are stopped a few times") {
  const uint64_t first = asked("TRIAGE_CLOSERS_SEED", 1), count = asked("TRIAGE_CLOSERS", 16);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const std::string program = RandomProgram(seed).text();
    const size_t stops = stops_of(program);
    CHECK_MESSAGE((stops > 0 && stops <= most_stops), "seed " << seed << ", stopped " << stops << " times:\n"
                                                              << program);
  }
}

}  // namespace triage::lua::testing
