// Nothing that a script or a host passes to C++ makes it overrun a stack, Lua's or its own: long lists of arguments,
// options, results, inputs and upvalues, deep tables, recursion without end, and a stack that is nearly full. On a Lua
// that checks its stack (`./dev sanitize lua`) a push without room ends the program where it happens.
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/semantics/libraries.h"
#include "bindings/lua/testing/policy_tests.h"
#include "tests/lua/lua_fixture.h"
#include "tests/lua/sandbox/small_stack.h"
#include "tests/paths.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <triage/triage.h>

#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace triage::lua::testing {
namespace {

std::string read_test_file(const std::string& name) {
  std::ifstream file(triage::test::source_dir() + "/tests/lua/sandbox/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

lua_Integer run_test_file(Fixture& fixture, const std::string& name) {
  lua_Integer result = 0;
  in_protected_call(fixture.lua(), [&](lua_State* L) {
    ChunkOptions options;
    options.policy = fixture.context().sandboxed;
    push_script_globals(L);
    options.env = lua_gettop(L);
    if (load_chunk(L, read_test_file(name), ("@" + name).c_str(), options) != LUA_OK) lua_error(L);
    lua_call(L, 0, 1);
    result = lua_tointeger(L, -1);
  });
  return result;
}

/// "a1, a2, ..., a<count>"
std::string numbered(const std::string& name, int count) {
  std::string text;
  for (int i = 1; i <= count; ++i) text += (i > 1 ? ", " : "") + name + std::to_string(i);
  return text;
}

/// Of the stack: what the library takes between the host's call and the beginning of a script.
constexpr size_t of_a_call = 32 << 10;

/// A budget that ends what never ends soon, and lets Lua's stack grow to its end.
RuntimeOptions roomy() {
  RuntimeOptions options;
  options.limits.instructions = 2'000'000;
  options.limits.seconds = 0.2;
  options.limits.script_bytes = 256u << 20;
  return options;
}

/// Each runs into the end of a stack.
const char* const endless[] = {
    "local function f() return 1 + f() end f()",
    "local function f(...) return 1 + f(1, ...) end f()",
    "local function f(...) return f(0, ..., ...) end f(table.unpack({}, 1, 1000))",
    "local function f() return pcall(f) end f()",
    "local function f() local ok, e = pcall(f) error(e) end f()",
    "local function f() return (string.gsub('a', 'a', f)) end f()",
    "local function f() table.sort({3, 2, 1}, f) return true end f()",
    "local t = setmetatable({}, {__index = function(t, k) return t[k] end}) local _ = t.x",
    "local t = setmetatable({}, {__newindex = function(t, k, v) t[k] = v end}) t.x = 1",
    "local t = setmetatable({}, {__add = function(a, b) return a + b end}) local _ = t + 1",
    "local t = setmetatable({}, {__concat = function(a, b) return a .. b end}) local _ = t .. 'x' .. t",
    ("local t = setmetatable({}, {__eq = function(a, b) return a == b end}) "
     "local _ = t == setmetatable({}, getmetatable(t))"),
    "local t = setmetatable({}, {__lt = function(a, b) return a < b end}) local _ = t < t, t > t",
    "local t = setmetatable({}, {__le = function(a, b) return a <= b end}) local _ = t <= t",
    "local t = setmetatable({}, {__len = function(t) return #t end}) local _ = #t",
    "local t = setmetatable({}, {__call = function(t) return 1 + t() end}) t()",
    "local t = setmetatable({}, {__tostring = function(t) return tostring(t) end}) local _ = tostring(t)",
    "local t = setmetatable({}, {__tostring = function(t) return ('%s'):format(t) end}) error(tostring(t))",
    "local t = setmetatable({}, {__pairs = function(t) return pairs(t) end}) pairs(t)",
    "local t = setmetatable({}, {__close = function(t) local c <close> = t end}) do local c <close> = t end",
    "xpcall(error, function(e) error(e) end)",
    "local function h(e) return h(e) + 1 end xpcall(error, h)",
    "local function f() return 1 + f() end xpcall(f, f)",
    "local function f() return xpcall(f, f) end f()",
    "local function f() return load('return ...')(f()) end f()",
    "local f f = function() return 1 + torch.no_grad(f) end f()",
    "local f f = triage.compile(function(x) return f(x) + 1 end) f(z)",
    "local f f = triage.disable(function(x) return f(x) + 1 end) f(z)",
    "local function f(x) return triage.compile(f)(x) + 1 end f(z)",
    "local function f(x) return triage.explain(f, x) end f(z)",
    "local function f(x) return triage.export(f, {x})(x) end f(z)",
    "local function f() return IF(z:amax(-1) > 0, f):ELSE(f) end f()",
    "local function f() if z:amax(-1) > 0 then z = z + f() end return z end f()",
    "local f f = tensorcheck(function(x) return f(x) + 1 end, {args = {Tensor(float32_t, {'N', '...'})}}) f(z)",
    "local function f(r) return r:map(function() return f(r) end) end f(Ok(1))",
    "local m = nn.Module() m.m = m local _ = tostring(m)",
    "local m = nn.Module() m.m = m m:parameters()",
    "local m = nn.Module() m.m = m m:state_dict()",
    "local m = nn.Module() m.m = m m:to(torch.float64)",
    "local t = {} for i = 1, 200000 do t = {t} end local _ = torch.tensor(t)",
    "local t = {} for i = 1, 200000 do t = {t} end local _ = triage.compile(function(x) return t and x end)(z)",
    "local t = {} t[1] = t local _ = z[t], torch.stack(t), z:view(t), z:sum(t)",
    "string.rep('(', 300):find(string.rep('(', 300))",
    "string.rep('a', 300000):find(string.rep('a?', 300000) .. 'b')",
    "assert(load('return ' .. string.rep('(', 100000) .. '1' .. string.rep(')', 100000)))",
    "assert(load('return ' .. string.rep('{', 100000) .. string.rep('}', 100000)))",
    "assert(load('return ' .. string.rep('-', 100000) .. '1'))",
    "assert(load('return ' .. string.rep('not ', 100000) .. '1'))",
    "assert(load('return ' .. string.rep('1 .. ', 100000) .. '1'))",
    "assert(load('return ' .. string.rep('2 ^ ', 100000) .. '1'))",
    "assert(load(string.rep('do ', 100000) .. string.rep('end ', 100000)))",
    "assert(load(string.rep('if x then ', 100000) .. string.rep('end ', 100000)))",
    "assert(load('return ' .. string.rep('function() return ', 100000) .. string.rep('end ', 100000)))",
    "assert(load('local a = x' .. string.rep('.y', 100000)))",
    "assert(load('f' .. string.rep('()', 100000)))",
    "return torch.zeros(table.unpack({}, 1, 999900))",
    "return triage.explain(function(...) return ... end, table.unpack({}, 1, 999900))",
    "return (select('#', triage.compile(function(...) return ... end)(table.unpack({}, 1, 999900))))",
    "return (select('#', triage.disable(function() return table.unpack({}, 1, 999900) end)()))",
};

/// How a script may come to it.
const char* const wrappings[] = {
    "%s",
    "pcall(triage.compile(function(z) %s return z end), z)",
    "IF(z:amax(-1) > 0, function() pcall(function() %s end) return z end):ELSE(function() return z end)",
    "if z:amax(-1) > 0 then pcall(function() %s end) z = z + 1 end",
};

std::string wrapped(std::string wrapping, const std::string& body) {
  return wrapping.replace(wrapping.find("%s"), 2, body);
}

/// A function of 250 upvalues, as `fn`: of two functions around it, since one has at most 200 locals.
std::string many_upvalues() {
  std::string sum = "x";
  for (int i = 1; i <= 125; ++i) sum += fmt::format(" + a{} + b{}", i, i);
  const std::string values = "table.unpack(ones, 1, 125)";
  return "local ones = {} for i = 1, 125 do ones[i] = torch.ones({1}) end\n"
         "local function outer() local " +
         numbered("a", 125) + " = " + values +
         "\n"
         "local function middle() local " +
         numbered("b", 125) + " = " + values +
         "\n"
         "return function(x) return " +
         sum +
         " end end return middle() end\n"
         "local fn = outer()\n";
}

}  // namespace

TEST_CASE("stack: every function takes long lists of arguments, options and results, or refuses them") {
  Fixture trusted;
  CHECK(run_test_file(trusted, "long_lists.lua") > 20'000);
  StateOptions options;
  options.sandboxed = true;
  options.path = "policy.lua";
  options.limits = {0, 0.0, 0, 0};
  Fixture policy(options);
  CHECK(run_test_file(policy, "long_lists.lua") > 20'000);
}

TEST_CASE("stack: what recurses without end is an error, whatever it is in, on a thread with the least stack") {
  const auto run = [](const char* wrapping, const char* body) {
    const std::string code = wrapped(wrapping, std::string("do local function own() ") + body + " end own() end");
    CAPTURE(code);
    try {
      const Policy policy =
          Runtime(roomy()).load_source("local calls = 0\nreturn function(z) " + code + " return z end", "test.lua");
      policy.run({at::randn({4, 3})});
    } catch (const InputError& error) {
      FAIL_CHECK(error.what());
    } catch (const Error&) {
    }
  };
  const bool shows = std::getenv("TRIAGE_STACK") != nullptr;  // what each takes
  size_t most = 0;
  for (const char* const wrapping : wrappings) {
    for (const char* const body : endless) {
      const size_t used = SmallStack::run(capture::least_stack + of_a_call, [&] { run(wrapping, body); });
      if (shows) MESSAGE((used >> 10) << " KiB: " << wrapped(wrapping, body));
      most = std::max(most, used);
    }
  }
  constexpr size_t reserve = capture::least_stack / 8;
  CHECK_MESSAGE(most + reserve <= capture::least_stack, "a script takes " << (most >> 10) << " KiB of stack");
  CHECK(Runtime()
            .load_source("return function(z) return z + 1 end", "test.lua")
            .run({at::ones({2})})[0]
            .sum()
            .item<float>() == 4);
}

TEST_CASE("stack: policies of 200 inputs and outputs, and their tests") {
  constexpr int count = 200;
  std::string quoted;
  for (int i = 1; i <= count; ++i) quoted += fmt::format("'v{}', ", i);
  const std::string source = fmt::format(
      "local function list() local all = {{}} for i = 1, {0} do all[i] = torch.full({{2}}, i) end return "
      "table.unpack(all) end\n"
      "return policy {{ inputs = {{{1}}}, outputs = {{{1}}}, run = function(...)\n"
      "  local all = {{...}} for i = 1, {0} do all[i] = all[i] + 1 end return table.unpack(all, 1, {0}) end,\n"
      "  tests = {{{{ name = 'many', args = list, check = function(...) return select('#', ...) == {0} end }},\n"
      "           {{ name = 'says', args = list, check = function() return false end }}}} }}",
      count, quoted);
  const Policy policy = Runtime().load_source(source, "test.lua");
  const std::vector<at::Tensor> inputs(count, at::ones({2}));
  for (int i = 0; i < 3; ++i) {
    const std::vector<at::Tensor> outputs = policy.run(inputs);
    REQUIRE(outputs.size() == count);
    CHECK(outputs.back().sum().item<float>() == 4);
  }
  TestOptions options;
  options.script.path = "test.lua";
  const PolicyTests report = run_policy_tests(source, options);
  CHECK(report.tests.at(0).failure == "");
  CHECK(report.tests.at(1).failure.find("check returned false") != std::string::npos);
}

TEST_CASE("stack: functions of 250 upvalues are compiled, explained and exported") {
  Fixture fixture;
  const at::Tensor x = at::ones({1});
  for (const char* const use :
       {"return fn(...)", "return triage.compile(fn)(...)", "return triage.export(fn, {...})(...)",
        "triage.explain(fn, ...) return fn(...)", "local c = triage.compile(fn) c(...) return c(...)"})
    CHECK(fixture.run1(many_upvalues() + use, {x}).item<float>() == 251);
}

TEST_CASE("stack: a function of the host may give 300 results") {
  RuntimeOptions options;
  Runtime runtime(options);
  runtime.define("many",
                 [](const std::vector<at::Tensor>& given) { return std::vector<at::Tensor>(300, given.at(0)); });
  const Policy policy =
      runtime.load_source("return function(z) local last = z * select('#', many(z)) return last end", "test.lua");
  CHECK(policy.run({at::ones({1})})[0].item<float>() == 300);
}

TEST_CASE("stack: where less than the least is left, a script does not begin, and its version is not to blame") {
  constexpr size_t page = 4096;
  const auto begins_with = [&](size_t left) {
    bool begins = true;
    SmallStack::run(left, [&] {
      try {
        capture::require_stack();
      } catch (const InputError&) {
        begins = false;
      }
    });
    return begins;
  };
  CHECK(begins_with(capture::least_stack + page));  // a page for the frames between
  CHECK(!begins_with(capture::least_stack - page));

  std::vector<std::string> errors;
  Runtime runtime;
  const Policy breaks = runtime.load_source("return function(z) print(z:sum():item()) return z end", "breaks.lua");
  SmallStack::run(capture::least_stack - page, [&] {
    for (const auto& call : std::vector<std::function<void()>>{
             [&] {
               breaks.run({at::ones({2, 2})});
             },
             [&] { runtime.load_source("return function(z) return z end", "small.lua"); }}) {
      try {
        call();
        errors.emplace_back("no error");
      } catch (const InputError& error) {
        errors.emplace_back(error.what());
      } catch (const LoadError& error) {
        errors.emplace_back(error.what());
      }
    }
  });
  REQUIRE(errors.size() == 2);
  for (const std::string& error : errors)
    CHECK_MESSAGE(error.find("KiB of stack left, and a script needs") != std::string::npos, error);
  CHECK(breaks.run({at::ones({2, 2})})[0].sum().item<float>() == 4);
}

TEST_CASE("stack: a thread with a stack of its own size runs what recurses") {
  const Policy policy = Runtime(roomy()).load_source(
      "return function(z) pcall(function() local f f = triage.disable(function(x) return f(x) + 1 end) f(z) end) "
      "return z end",
      "test.lua");
  std::thread([&] { CHECK_NOTHROW(policy.run({at::ones({2})})); }).join();
}

}  // namespace triage::lua::testing
