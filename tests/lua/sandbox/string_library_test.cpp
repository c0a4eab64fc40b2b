// The budgeted string and table functions of policies against Lua's own: same results, same messages.
#include "bindings/lua/sandbox/sandbox.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/state/protected.h"

#include <doctest/doctest.h>

#include <string>

namespace triage::lua {
namespace {

std::string transcript(bool sandboxed, const std::string& source) {
  StateOptions options;
  options.sandboxed = sandboxed;
  options.path = "script.lua";
  options.limits = {0, 0.0, 0, 0};
  ScriptState state(options);
  std::string text;
  in_protected_call(state.lua(), [&](lua_State* L) {
    ChunkOptions chunk;
    state.push_environment();
    chunk.env = lua_gettop(L);
    chunk.policy = sandboxed;
    if (load_chunk(L, source, "@script.lua", chunk) != LUA_OK) lua_error(L);
    lua_call(L, 0, 1);
    text = lua_tostring(L, -1);
  });
  return text;
}

void check_same_transcripts(const std::string& source) {
  const std::string ours = transcript(true, source), lua = transcript(false, source);
  REQUIRE(lua.size() > 1000);  // the script compared something
  if (ours == lua) return;
  size_t at = 0;
  while (ours[at] == lua[at]) ++at;
  const size_t from = lua.rfind('\n', at) == std::string::npos ? 0 : lua.rfind('\n', at);
  FAIL_CHECK("Lua: " << lua.substr(from, 300) << "\nours: " << ours.substr(from, 300));
}

const std::string prologue = R"lua(
  local lines = {}
  local function note(...)
    local parts = table.pack(...)
    for i = 1, parts.n do
      local kind = type(parts[i])   -- functions and tables: their text is an address
      parts[i] = kind == 'string' and ('%q'):format(parts[i]) or (kind == 'function' or kind == 'table') and kind or tostring(parts[i])
    end
    table.insert(lines, table.concat(parts, ' ', 1, parts.n))
  end
  local function all(s, p)
    local found = {}
    for a, b in s:gmatch(p) do table.insert(found, tostring(a) .. '|' .. tostring(b)) end
    return table.concat(found, ';')
  end
)lua";
const std::string epilogue = "\nreturn table.concat(lines, '\\n')";

}  // namespace

TEST_CASE("sandbox: patterns match as Lua matches them") {
  check_same_transcripts(prologue + R"lua(
    local items = {'a', '.', '%a', '%d', '%s', '%W', '%x', '%p', '[ab]', '[^ab]', '[%a_]', '[a-c]', '[]]', '[^]]', '%.', 'é', '[%-x]', '[a-]'}
    local suffixes = {'', '*', '+', '-', '?'}
    local subjects = {'', 'a', 'aaa', 'ab12 c_d', 'b-x]', 'THE (quick) fox', 'é.é', 'a\0b\0', '  x  ', '%d'}
    local patterns = {'^', '$', '^$', '', '()', '(a)', '(a)(b)', '((a)(b)?)', '%b()', '%b', '%b(', '%f[%w]%w+', '%f', '%f[', '(a', 'a)', '%1', '(a)%1',
      '(.)%1', '[', '[a', '[^', '%', 'a%', '[%', '(()a)', '^(%s*)(.-)(%s*)$', '(%w+)=(%w+)', 'a-$', '.-b', '^.-$', '%2', '(a)%2', '()%1', 'x*', '$a', 'a$b',
      '[a%]]', '%z', '[%z]', '(a*(.)%w(%s*))', '%D', '%%', '[a-%%]', '(.+)', '(.-)%s', '^a', '%ba'}
    for _, item in ipairs(items) do
      for _, suffix in ipairs(suffixes) do
        for _, tail in ipairs{'', 'b', '$', '(.*)'} do table.insert(patterns, item .. suffix .. tail) end
      end
    end
    for _, s in ipairs(subjects) do
      for _, p in ipairs(patterns) do
        note('find', s, p, pcall(string.find, s, p))
        note('find', s, p, pcall(string.find, s, p, -2))
        note('match', s, p, pcall(string.match, s, p, 2))
        note('gsub', s, p, pcall(string.gsub, s, p, '<%0>'))
        note('gsub', s, p, pcall(string.gsub, s, p, '%1%%', 2))
        note('gsub', s, p, pcall(string.gsub, s, p, {a = 'A', b = false}))
        note('gsub', s, p, pcall(string.gsub, s, p, function(a, b) return b end))
        note('all', s, p, pcall(all, s, p))
      end
    end
  )lua" + epilogue);
}

TEST_CASE("sandbox: string and table functions keep Lua's results and messages") {
  check_same_transcripts(prologue + R"lua(
    local function f() return 1 end
    for _, name in ipairs{'find', 'match', 'gsub', 'gmatch', 'rep', 'format', 'upper', 'sub', 'byte', 'reverse', 'len', 'lower', 'char', 'pack', 'unpack'} do
      for _, arguments in ipairs{{}, {1}, {'x'}, {'x', 'y'}, {'x', 1}, {'x', 3, ','}, {'x', -1}, {'x', {}}, {{}, 'x'}, {'a b', '%s', f}, {'abc', 'b', {}},
          {'abc', 'b', true}, {'abc', 'b', '%'}, {'abc', 'b', '%9'}, {'abc', 'b', f, 0}, {'abc', '(b', 'x'}, {'hello', 'l+', 'L', 1}, {'x', 1 << 62}, {'', 5, ''},
          {'%d', 3}, {'%s %s', 1, 2.5}, {'%q', 'a\nb\0'}, {'%5.2f|%-5d|%05d', 1.234, 5, 6}, {'%x%%', 255}, {'%d', 'x'}, {'%y', 1}, {'%s'}, {'%', 1}, {'%s', nil},
          {'abc', 'b', 1, true}, {'a.c', '.', 1, true}, {'abc', 'c', 10}, {'abc', '', 4}, {'abc', '', 5}, {'%10.4s|', 'abcdefgh'}, {'%c%c', 65, 66}, {'%i', 3.0},
          {'%d', 3.5}, {'%a', 1.0}, {'%g', 1e300}, {'%s', true}} do
        note(name, pcall(string[name], table.unpack(arguments, 1, #arguments == 0 and 0 or 4)))
        note(name, pcall(string[name], table.unpack(arguments)))
      end
    end
    for _, arguments in ipairs{{}, {{}}, {{1, 2, 3}}, {{1, 2, 3}, 9}, {{1, 2, 3}, 1, 9}, {{1, 2, 3}, 4, 9}, {{1, 2, 3}, 5, 9}, {{1, 2, 3}, 0, 9}, {{1, 2}, 1, 2, 3},
        {{1, 2, 3}, 2}, {{1, 2, 3}, 0}, {{}, 0}, {{}, 1}, {{1, 2, 3}, ','}, {{1, 'b', 2.5}, '-'}, {{1, 2, 3}, ',', 2}, {{1, 2, 3}, ',', 2, 3}, {{1, {}, 3}, ','},
        {{1, 2, 3}, ',', 3, 2}, {{1, 2, 3}, 1, 3, 2}, {{3, 1, 2}}, {{3, 'a', 2}}, {{1, 2, 3}, f}, {7}, {'x'}} do
      for _, name in ipairs{'insert', 'remove', 'concat', 'move', 'unpack', 'sort'} do
        local first = type(arguments[1]) == 'table' and {table.unpack(arguments[1])} or arguments[1]
        local results = table.pack(pcall(table[name], first, table.unpack(arguments, 2)))
        -- versions of Lua differ in which argument of remove they blame
        if name == 'remove' and not results[1] then results[2] = results[2]:gsub('#%d', '#') end
        note(name, table.unpack(results, 1, results.n))
        if type(first) == 'table' then note(#first, first[1], first[2], first[3], first[4]) end
      end
    end
    note(pcall(table.concat, setmetatable({}, {__index = function(_, i) return 'v' .. i end, __len = function() return 3 end}), ','))
    note(pcall(table.sort, setmetatable({}, {__index = function(_, i) return 4 - i end, __len = function() return 3 end})))
  )lua" + epilogue);
}

}  // namespace triage::lua
