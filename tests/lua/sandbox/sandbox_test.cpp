// What a policy must not be able to do: each attack is stopped, and the process runs a healthy policy after it.
#include "bindings/lua/sandbox/sandbox.h"
#include "bindings/lua/engine/script_state.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/values/tensor.h"
#include "tests/paths.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

namespace triage::lua {
namespace {

StateOptions policy_options() {
  StateOptions options;
  options.path = "policy.lua";
  options.limits.instructions = 5'000'000;
  options.limits.seconds = 2.0;
  options.limits.script_bytes = 16u << 20;
  options.limits.tensor_bytes = 64u << 20;
  return options;
}

/// Runs a chunk in a policy's state and returns its first result.
std::string run_in(ScriptState& state, const std::string& source) {
  std::string result;
  Budget budget(state);
  in_protected_call(state.lua(), [&](lua_State* L) {
    ChunkOptions options;
    state.push_environment();
    options.env = lua_gettop(L);
    if (load_chunk(L, source, "@policy.lua", options) != LUA_OK) lua_error(L);
    lua_call(L, 0, 1);
    result = lua_isnil(L, -1) ? "nil" : luaL_tolstring(L, -1, nullptr);
  });
  return result;
}

std::string run(const std::string& source) {
  ScriptState state(policy_options());
  return run_in(state, source);
}

std::string error_of(ScriptState& state, const std::string& source) {
  try {
    run_in(state, source);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string error_of(const std::string& source) {
  ScriptState state(policy_options());
  return error_of(state, source);
}

/// The attack ends (a test that hangs is stopped by its runner), and leaves the process (and, after it, its own state)
/// able to work.
void check_stopped(const std::string& attack, const char* expected) {
  INFO(attack);
  {
    ScriptState state(policy_options());
    const std::string message = error_of(state, attack);
    CHECK_MESSAGE(message.find(expected) != std::string::npos,
                  "expected '" << expected << "', got '" << message << "'");
    CHECK(run_in(state, "return 1 + 1") == "2");
  }  // closing must not hang either
  CHECK(run("local f = flag_nan(torch.tensor({{0/0}, {1.0}}), 1023) return flags.repr(f)") ==
        "ErrorFlags(2 samples, 1 errors: 1xNAN @ Location_1023)");
}

}  // namespace

TEST_CASE("sandbox: endless and huge work inside C functions is stopped") {
  for (const char* attack : {
           "string.rep('x', 1 << 62)",
           "local s = ('x'):rep(1 << 40)",
           "return ('x'):rep(200000):find(('.-'):rep(5) .. 'y')",
           "return ('x'):rep(200000):match(('.-'):rep(5) .. 'y')",
           "return ('x'):rep(200000):gsub(('.-'):rep(5) .. 'y', '')",
           "for a in ('x'):rep(200000):gmatch(('.-'):rep(5) .. 'y') do end",
           "return ('x'):rep(1000000):find('[' .. ('a'):rep(1000000) .. ']')",
           "table.move({}, 1, 1 << 60, 2)",
           "table.insert(setmetatable({}, {__len = function() return 1 << 60 end}), 1, 0)",
           "table.remove(setmetatable({}, {__len = function() return 1 << 60 end}), 1)",
           "table.sort(setmetatable({}, {__len = function() return 1 << 40 end}))",
           "return table.concat(setmetatable({}, {__len = function() return 1 << 60 end, __index = function() return "
           "'x' end}))",
           "local s = ('x'):rep(1000000) return s:gsub('x', ('y'):rep(1000000))",
           "local s = ('x'):rep(1000000) local t = {} for i = 1, 200 do t[i] = s end return table.concat(t)",
           "local s = ('x'):rep(1000000) local t = {} for i = 1, 100 do t[i] = s end "
           "return string.format(('%s'):rep(100), table.unpack(t))",
           "local s = 'x' for i = 1, 40 do s = s .. s end",
           "local t = {} for i = 1, 1e9 do t[i] = {} end",
       })
    check_stopped(attack, "budget");
  CHECK(run("return '<' .. string.rep('', 1 << 62) .. '>'") == "<>");
}

TEST_CASE("sandbox: a budget that ran out cannot be absorbed") {
  check_stopped("while true do pcall(function() while true do end end) end", "budget");
  check_stopped("while true do xpcall(function() while true do end end, function() while true do end end) end",
                "budget");
  check_stopped("local t <close> = setmetatable({}, {__close = function() while true do end end}) while true do end",
                "budget");
  check_stopped("load(function() while true do end end) while true do end", "budget");
  check_stopped("local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) return t[1]", "overflow");
}

TEST_CASE("sandbox: finalizers are refused, with and without a collection, and closing does not hang") {
  check_stopped("setmetatable({}, {__gc = function() while true do end end})", "__gc");
  check_stopped("local t = {} setmetatable(t, {__gc = true})", "__gc");
  CHECK(run("local m = {} setmetatable({}, m) m.__gc = function() while true do end end "
            "for i = 1, 20000 do local t = {} end return 'quiet'") == "quiet");
}

TEST_CASE("sandbox: an error value is never turned to text by its own code") {
  check_stopped("error(setmetatable({}, {__tostring = function() while true do end end}))", "error object is a table");
}

TEST_CASE("sandbox: tensors are charged") {
  check_stopped("local t = {} for i = 1, 1e6 do t[i] = torch.zeros(1000000) end", "tensor memory");
  check_stopped("return torch.zeros(1 << 40)", "tensor memory");
  // Small enough for LibTorch to fill on one thread: on a busy machine its thread pool would eat the time budget.
  CHECK(run("local n = 0 for i = 1, 2500 do local t = torch.zeros(30000) n = n + 1 end return n") == "2500");
}

TEST_CASE("sandbox: a million parentheses are a syntax error") {
  CHECK(run("local f, message = load('return ' .. ('('):rep(1e5)) return tostring(f) .. ' ' .. type(message)") ==
        "nil string");
}

TEST_CASE("sandbox: an allocator that never refuses keeps Lua 5.4.4 from using freed memory") {
  StateOptions options = policy_options();
  options.limits = {2'000'000'000, 60.0, 2u << 20, 0};
  ScriptState state(options);
  error_of(state,
           "for r = 1, 400 do local t = setmetatable({}, setmetatable({__newindex = {}}, {__mode = 'v'})) "
           "for k = 1, 4096 do t[k] = 1 end end");
  CHECK(run_in(state, "return 7") == "7");
}

TEST_CASE("sandbox: what is not on the allow-list is not there") {
  for (const char* name : {"os", "io", "debug", "package", "require", "dofile", "loadfile", "coroutine", "string.dump",
                           "set_config", "ErrorLocation.reset", "math.randomseed", "warn"})
    CHECK_MESSAGE(run(std::string("return ") + name) == "nil", name);
  CHECK(run("return load('return os, io')()") == "nil");
  CHECK(run("return tostring(_G.os) .. tostring(_G._G.io) .. tostring(getmetatable('').__index)") != "");
}

TEST_CASE("sandbox: libraries are read-only, metatables closed, addresses hidden") {
  CHECK(error_of("string.rep = nil").find("read-only") != std::string::npos);
  CHECK(error_of("err.NAN = 2").find("read-only") != std::string::npos);
  CHECK(error_of("torch.zeros = nil").find("read-only") != std::string::npos);
  CHECK(error_of("rawset(string, 'rep', 1)").find("read-only") != std::string::npos);
  CHECK(error_of("rawset(err, 'NAN', 2)").find("read-only") != std::string::npos);
  CHECK(error_of("setmetatable(torch, {})").find("protected") != std::string::npos);
  CHECK(error_of("Priority.CHRONO = 4").find("read-only") != std::string::npos);
  CHECK(error_of("CONFIG.num_slots = 4").find("policy") != std::string::npos);
  CHECK(error_of("get_config().num_slots = 4").find("policy") != std::string::npos);
  CHECK(run("return type(getmetatable(''))") == "string");
  CHECK(run("return type(getmetatable(torch.zeros(1)))") == "string");
  CHECK(run("return tostring({}):find('0x') or tostring(print):find('0x') or string.format('%s', {}):find('0x')") ==
        "nil");
  CHECK(error_of("return string.format('%p', {})").find("address") != std::string::npos);
  CHECK(error_of("collectgarbage()").find("count") != std::string::npos);
  CHECK(run("return collectgarbage('count') > 1") == "true");
}

TEST_CASE("sandbox: forged and wrong selves") {
  CHECK(error_of("local add = torch.zeros(1).add return add(nil, 1)").find("add") != std::string::npos);
  CHECK(error_of("local add = torch.zeros(1).add return add(setmetatable({}, {__name = 'Tensor'}), 1)").find("add") !=
        std::string::npos);
  CHECK(error_of("return flags.repr(setmetatable({}, {__name = 'Tensor'}))").find("flags tensor") != std::string::npos);
  CHECK(error_of("assert(torch.zeros(3) < 1)").find("condition") != std::string::npos);
  CHECK(error_of("table.sort({3, 1, 2}, function(a, b) return torch.tensor({1.0, 2.0}) < a end)").find("condition") !=
        std::string::npos);
}

TEST_CASE("sandbox: operators that have no contract are not there") {
  const std::string why = "is not among the operators of policies; a trusted script may call it";
  for (const char* name : {"from_file", "as_strided", "bincount", "embedding_bag", "reflection_pad1d", "special_zeta",
                           "grid_sampler", "tril_indices"}) {
    INFO(name);
    CHECK(error_of(std::string("return torch.ops.aten.") + name + "(3)").find(why) != std::string::npos);
  }
  for (const char* name : {"torch.empty", "torch.ops.aten.empty"})  // what is told can be written
    CHECK(
        error_of(std::string("return ") + name + "(3)")
            .find(
                "`torch.empty` is not among the operators of policies; policies make no tensors with unknown values") !=
        std::string::npos);
  CHECK(error_of("return torch.empty_like(torch.ones(3))").find("write torch.zeros_like(x)") != std::string::npos);
  CHECK(error_of("return torch.ops.aten.emty(3)").find("torch.emty: there is no such operator") != std::string::npos);
  CHECK(error_of("return torch.zeros(3):resize_({100})").find(why) != std::string::npos);
  CHECK(error_of("return torch.zeros(3):set_(torch.ones(3))").find(why) != std::string::npos);
  CHECK(error_of("return torch.ops.aten.from_file('/etc/passwd')").find(why) != std::string::npos);
  CHECK(error_of("return torch.bincoun(torch.ones(3))").find("bincount") == std::string::npos);
  CHECK(error_of("return torch.ops.triage.no_such(3)").find("there is no such operator") != std::string::npos);
}

TEST_CASE("sandbox: arguments out of the contract never reach ATen") {
  const struct {
    const char *call, *says;
  } calls[] = {
      {"torch.max_pool1d(torch.ones({2, 3, 4}), {1 << 62}, {1})", "'kernel_size'"},
      {"torch.pad(torch.ones({1, 4}), {}, 'reflect')", "'pad'"},
      {"torch.repeat_interleave(torch.tensor({1, 2, 4}))", "argument"},
      {"torch.ones({2, 3}):slice(0, 0, 9, 1 << 62)", "'step'"},
      {"torch.ones({2}):expand({1 << 40, 1 << 40, 2})", "'size'"},
      {"torch.mse_loss(torch.ones(3), torch.ones(3), 77)", "'reduction' is 77; expected 0 to 2"},
      {"torch.batch_norm(torch.ones({2, 3}), nil, nil, torch.ones(3), torch.ones(3), true, 1.0, 1e-5, false)",
       "'training'"},
      {"torch.median(torch.tensor({5.0}):expand({7}), 0)", "call x:contiguous()"},
      {"torch.ones({3}):expand({2, 3}):add_(1)", "call x:clone()"},
      {"torch.group_norm(torch.ones({2, 4}), 0)", "'num_groups' is 0"},
  };
  for (const auto& [text, says] : calls) {
    const std::string call = text;
    INFO(call);
    CHECK(error_of("return " + call).find(says) != std::string::npos);
  }
}

TEST_CASE("sandbox: what a call allocates is charged before it does, with its workspace") {
  for (const char* call :
       {"torch.arange(1.6e9)", "torch.full({1 << 30}, 1.0)", "torch.ones({1 << 13}):outer(torch.ones({1 << 13}))",
        "torch.ones({1, 1}):expand({4096, 4096}):clone()", "torch.cdist(torch.ones({8192, 2}), torch.ones({8192, 2}))",
        "torch.ones({4096, 1}) + torch.ones({1, 8192})",
        "torch.one_hot(torch.zeros({1024}, {dtype = torch.int64}), 1 << 20)",
        "torch.constant_pad_nd(torch.ones({2}), {1 << 30, 0})", "torch.diag(torch.ones({2}), 1 << 20)",
        "torch.einsum('i,j,k->ijk', {torch.ones(999), torch.ones(999), torch.ones(999)})",
        "torch.tile(torch.ones({2}), {1 << 28})",
        "torch.zeros({1}, {dtype = torch.int64}):expand({1 << 24}):to(torch.float64)"}) {
    const std::string message = error_of(std::string("return ") + call);
    CHECK_MESSAGE(message.find("tensor memory") != std::string::npos, std::string(call), ": ", message);
  }
}

TEST_CASE("sandbox: a call that may take longer than the budget of time is not begun") {
  StateOptions options = policy_options();
  options.limits.tensor_bytes = size_t{1} << 30;
  ScriptState state(options);
  const std::string message =
      error_of(state, "local x = torch.ones({1500, 1}):expand({1500, 1500}) return x:matmul(x)");
  CHECK_MESSAGE(message.find("may take") != std::string::npos, message);
}

TEST_CASE("sandbox: two policies share nothing") {
  ScriptState a(policy_options()), b(policy_options());
  run_in(a, "shared = 5");
  CHECK(run_in(a, "return shared") == "5");
  CHECK(run_in(b, "return shared") == "nil");
}

TEST_CASE("sandbox: everything reachable from a policy is on the golden list") {
  const auto state = make_script_state(policy_options());
  const std::string reachable = run_in(*state, R"lua(
    local seen, lines = {}, {}
    local function walk(value, path)
      local kind = type(value)
      table.insert(lines, path .. ' ' .. kind)
      if kind ~= 'table' or seen[value] then return end
      seen[value] = true
      for key, field in pairs(value) do
        if path ~= 'torch' or type(field) ~= 'userdata' then walk(field, path .. '.' .. tostring(key)) end
      end
    end
    for name, value in pairs(_G) do
      if name ~= '_G' then walk(value, name) end
    end
    table.sort(lines)
    return table.concat(lines, '\n') .. '\n'
  )lua");
  const std::string path = triage::test::source_dir() + "/tests/lua/sandbox/policy_environment.golden";
  std::ifstream in(path);
  const std::string golden{std::istreambuf_iterator<char>(in), {}};
  if (golden != reachable) std::ofstream("policy_environment.actual") << reachable;
  CHECK_MESSAGE(golden == reachable,
                "differs from " << path << "; what is there now was written to policy_environment.actual");
}

}  // namespace triage::lua
