// What Lua refuses is refused with Lua's own words.
#include <doctest/doctest.h>

#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/rewriter/syntax/chunk_name.h"
#include "tests/rewriter/scripted.h"

namespace triage::lua::testing {
namespace {

/// The message of Lua's own compiler; empty where it takes the program.
std::string message_of_lua(const std::string& source, const std::string& chunk_name) {
  const LuaState state(luaL_newstate());
  if (luaL_loadbufferx(state.get(), source.data(), source.size(), chunk_name.c_str(), "t") == LUA_OK) return "";
  return lua_tostring(state.get(), -1);
}

std::string message_of_rewriter(const std::string& source, const std::string& chunk_name, bool policy = false) {
  try {
    rewriter::rewrite(source, chunk_name, {policy});
    return "";
  } catch (const rewriter::SyntaxError& error) {
    return error.what();
  }
}

const std::string kBroken[] = {
    // what is missing, or too much
    "x =",
    "x = 1 +",
    "x = = 1",
    "return return",
    "if",
    "if x",
    "if x then",
    "if x then else",
    "if x then elseif",
    "if x then else else end",
    "while x",
    "while x do",
    "while do end",
    "repeat",
    "repeat x()",
    "repeat until",
    "for",
    "for x",
    "for 1 = 2",
    "for x = 1",
    "for x = 1 do end",
    "for x = 1, 2, 3, 4 do end",
    "for x in",
    "for x in y",
    "for x, y = 1, 2 do end",
    "for x.y in z do end",
    "do",
    "do do end",
    "end",
    "do end end",
    "function",
    "function f",
    "function f(",
    "function f()",
    "function f(a",
    "function f(a,",
    "function f(1)",
    "function f(...",
    "function f(..., a) end",
    "function f.1() end",
    "function f:g:h() end",
    "function f:g.h() end",
    "function 1() end",
    "local",
    "local 1",
    "local x,",
    "local x = ",
    "local function",
    "local function f.g() end",
    "local x <",
    "local x <const",
    "local x <foo> = 1",
    "local x <close>, y <close> = 1, 2",
    "return 1,",
    "return 1 2",
    "return\nreturn",
    "x",
    "x.y",
    "x y",
    "x:y",
    "x:y = 1",
    "f() = 1",
    "x, f() = 1",
    "(x) = 1",
    "x, y",
    "1 = x",
    "'a' = 1",
    "{} = 1",
    "x = }",
    "x = {",
    "x = {1",
    "x = {1,",
    "x = {1;;}",
    "x = {[1]}",
    "x = {[1 = 2}",
    "x = {a =}",
    "x = {,}",
    "x = (1",
    "x = (",
    "x = ()",
    "f(",
    "f(1",
    "f(1,)",
    "x = a.1",
    "x = a.",
    "x = a:",
    "x = a:b",
    "x = a[1",
    "x = a[",
    "a.b:c.d()",
    "x = not",
    "x = #",
    "x = -",
    "x = 1 + + 2",
    "x = a and",
    "x = or a",
    "x = 1 .. ",
    "break",
    "do break end",
    "while true do function f() break end end",
    "goto",
    "goto 1",
    "goto x",
    "::x",
    "::x::\n::x::",
    "do goto x; local y; ::x:: z() end",
    "repeat goto c; local z = 1; ::c:: until z",
    "x = ...; function f() return ... end",
    "x = function",
    "x = function (",
    "local x <const> = 1; x = 2",
    "local x <const> = 1; function f() x = 2 end",
    "local x <close> = nil; x = 1",
    "local x <const> = 1; function x() end",
    "a.b = 1 c",
    "local t = {} t.",
    // several lines: which opening is not closed
    "if x then\n\n",
    "while x do\n",
    "for i = 1, 2 do\nx()\n",
    "function f()\nreturn 1",
    "do\n",
    "repeat\nx()\n",
    "f(\n1",
    "x = {\n1\n",
    "x = (\n1\n",
    "x = a[\n1\n",
    "function f()\n  if x then\n  return 1",
    "function f()\nif x then\nreturn 1\nend",
    "f(\n1\n2)",
    "x = {\n1\n2}",
    "a.b(\n{\n)",
    // tokens
    "x = 'unfinished",
    "x = 'unfinished\ny'",
    "x = \"a\\",
    "x = [[unfinished",
    "x = [==[ ]] ]=]",
    "--[[ unfinished",
    "--[==[ ]]",
    "x = [=",
    "x = [=x",
    "x = '\\q'",
    "x = '\\x'",
    "x = '\\x1'",
    "x = '\\xg1'",
    "x = '\\u'",
    "x = '\\u{'",
    "x = '\\u{}'",
    "x = '\\u{zz}'",
    "x = '\\u{110000000}'",
    "x = '\\u{12'",
    "x = '\\300'",
    "x = 'a\\999b'",
    "x = 3x",
    "x = 0x",
    "x = 0xg",
    "x = 1e",
    "x = 1e+",
    "x = 0x1p",
    "x = 1..2",
    "x = 1.2.3",
    "x = 0x.p1",
    "x = 1a",
    "x = $",
    "x = a ? b",
    "x = ~",
    "x = a ~ ",
    "x = `a`",
    "\x01",
    "x = \x7f",
    "x = \"a\nb\"",
    // literals that are shown behind "near"
    "x = 1 'string'",
    "x = f 1",
    "local 'a'",
    "x = 5 5.5",
    "x = y [[long\nstring]] 5",
    "goto 'x'",
    "for 'a' = 1",
    "x = a 0x10",
    "f(1 'a\\n')",
    "x = 1 \"a\\0b\"",
    "x = 'a' 'b'",
    "x = nil nil",
    "x = true false",
    "x = end",
    "x = until",
    "x = 'caf\xc3\xa9' 1",
    "x = \"quote\\\"d\" y z",
};

}  // namespace

TEST_CASE("an argument written with its name gets a hint") {
  const auto message = [](const std::string& source) -> std::string {
    try {
      triage::lua::rewriter::rewrite(source, "@p.lua");
    } catch (const triage::lua::rewriter::SyntaxError& error) {
      return error.what();
    }
    return "";
  };
  const std::string hint = "')' expected (Lua passes named arguments in a table: {dim = ...} for dim=...) near '='";
  CHECK(message("local y = z:sum(dim=-1)") == "p.lua:1: " + hint);
  CHECK(message("local y = torch.sum(z, 1,\n dim = 2)") == "p.lua:2: " + hint);
  CHECK(message("local y = f(1 = 2)") == "p.lua:1: ')' expected near '='");
  CHECK(message("local y = f(a.b = 2)") == "p.lua:1: ')' expected near '='");
}

TEST_CASE("broken programs are refused with Lua's own messages") {
  for (const std::string& source : kBroken) {
    CAPTURE(source);
    const std::string expected = message_of_lua(source, "=chunk");
    CHECK(!expected.empty());
    CHECK(message_of_rewriter(source, "=chunk") == expected);
  }
}

TEST_CASE("a block that took the end of an outer one is named, by where they stand") {
  const auto said = [](const std::string& source) { return message_of_rewriter(source, "=chunk"); };
  CHECK(said("function f()\n  if x then\n  return 1\nend") ==
        "chunk:4: 'end' expected (to close 'function' at line 1; 'if' at line 2 seems to have no `end`: it took the "
        "one of "
        "line 4, which is indented less) near <eof>");
  CHECK(said("return function(z)\r\n\tfor i = 1, 3 do\r\n\t\tif z then\r\n\t\tg()\r\n\tend\r\n\treturn z\r\nend\r\n")
            .find("'if' at line 3 seems to have no `end`: it took the one of line 5") != std::string::npos);
  CHECK(said("call(function()\n  while x do\n    y()\n)").find("lack") ==
        std::string::npos);  // Lua names the right one
  for (const char* even : {"do\ndo\nend", "do\n\tdo\n  end\n", "do\n do x() end\n", "do\rdo\r  x()\rend\r"})
    CHECK(said(even) == message_of_lua(even, "=chunk"));
}

TEST_CASE("prefixes of a program are refused, or taken, as by Lua") {
  const std::string source =
      "local a <const>, b = 1, {x = [[y]], ['z'] = 0x1p4; f(), ...}\nfor i = 1, #b do if a < i and not b[i] then goto "
      "c elseif b.x:m 'q' then "
      "break else b.f{1}[2] = -i // 2 .. '\\x41\\z  \\u{48}' end ::c:: end\nrepeat local u <close> = nil until a == b "
      "or a ~= 3\n"
      "function b.x.y:z(p, ...) return p, ..., function() end end while ~a & 3 >= 2 do local function r() return r() "
      "end end return a, b;";
  for (size_t length = 0; length <= source.size(); length++) {
    const std::string prefix = source.substr(0, length);
    CAPTURE(prefix);
    CHECK(message_of_rewriter(prefix, "@prefix.lua") == message_of_lua(prefix, "@prefix.lua"));
  }
}

TEST_CASE("chunk names are shown as Lua shows them") {
  const std::string names[] = {"@file.lua",
                               "=name",
                               "",
                               "=",
                               "@",
                               "return 1",
                               "first\nsecond",
                               std::string(80, 'x'),
                               "@" + std::string(80, 'd') + "/file.lua",
                               "=" + std::string(80, 'n'),
                               "@" + std::string(58, 'a'),
                               "@" + std::string(59, 'a'),
                               "@" + std::string(60, 'a'),
                               "=" + std::string(59, 'b'),
                               "=" + std::string(60, 'b'),
                               std::string(43, 'c'),
                               std::string(44, 'c'),
                               std::string(45, 'c'),
                               std::string(46, 'c'),
                               "\n",
                               "short\n" + std::string(60, 'y')};
  for (const std::string& name : names) {
    CAPTURE(name);
    CHECK(message_of_rewriter("x =", name) == message_of_lua("x =", name));
    CHECK(rewriter::display_name(name) + ":1: unexpected symbol near <eof>" == message_of_lua("x =", name));
  }
}

TEST_CASE("errors carry line and column") {
  try {
    rewriter::rewrite("local a = 1\n  local b = = 2", "@p.lua");
    FAIL("was not refused");
  } catch (const rewriter::SyntaxError& error) {
    CHECK(error.line == 2);
    CHECK(error.column == 13);
    CHECK(std::string(error.what()) == "p.lua:2: unexpected symbol near '='");
  }
}

TEST_CASE("nesting without end is an error, not a crash") {
  const size_t many = 1'000'000;
  const std::string openings[] = {"(",   "{",    "- ", "not ", "#", "f(", "a[", "x ..", "x ^", "function() return ",
                                  "{x=", "{[1]="};
  for (const std::string& opening : openings) {
    std::string source = "return ";
    for (size_t i = 0; i < many / opening.size(); i++) source += opening;
    CAPTURE(opening);
    CHECK(message_of_rewriter(source, "=deep").find("C stack overflow: the chunk has too many syntax levels") !=
          std::string::npos);
  }
  const std::string blocks[] = {"do ",           "while x do ",         "if x then ", "repeat ",
                                "function f() ", "local function f() ", "a, "};
  for (const std::string& block : blocks) {
    std::string source;
    for (size_t i = 0; i < 10'000; i++) source += block;
    CAPTURE(block);
    CHECK(message_of_rewriter(source, "=deep").find("C stack overflow") != std::string::npos);
  }
}

TEST_CASE("chains that lean to the left may be as long as they like") {
  const std::string links[] = {" + 1", ".x", "()", "[1]", " and x", " or x", ":m()", " 'call'", "{}"};
  for (const std::string& link : links) {
    std::string source = "return x";
    for (size_t i = 0; i < 200'000; i++) source += link;
    CAPTURE(link);
    CHECK(message_of_rewriter(source, "=long").empty());
    CHECK(rewriter::check(source, "=long", {/*policy=*/false}).empty());
  }
}

TEST_CASE("policies may not touch their environment, and nobody the runtime's names") {
  for (const char* source :
       {"local _ENV = {}", "local a, _ENV = 1", "_ENV = {}", "function f(_ENV) end", "for _ENV = 1, 2 do end",
        "for _ENV in x do end", "local function _ENV() end", "function _ENV() end", "_ENV, x = 1"}) {
    CAPTURE(source);
    CHECK(message_of_rewriter(source, "=p", true).find("'_ENV'") != std::string::npos);
    CHECK(message_of_rewriter(source, "=p", false).empty());
  }
  CHECK(message_of_rewriter("_ENV.x = _ENV.y", "=p", true).empty());
  for (const char* source : {"return __triage_lt", "local __triage_x = 1", "x.__triage_y = 1", "goto __triage_z",
                             "return {__triage_t = 1}", "x:__triage_m()"}) {
    CAPTURE(source);
    CHECK(message_of_rewriter(source, "=p").find("a name that starts with '__triage_' is reserved") !=
          std::string::npos);
  }
  CHECK(message_of_rewriter("return '__triage_lt', _triage_x, x__triage_ -- __triage_", "=p").empty());
}

TEST_CASE("signs of other languages are told apart from other mistakes") {
  CHECK(message_of_rewriter("if x != y then end", "=p") == "p:1: 'then' expected (Lua writes ~= for !=) near '!'");
  CHECK(message_of_rewriter("x += 1", "=p") == "p:1: syntax error (Lua has no +=; write x = x + ...) near '+'");
  CHECK(message_of_rewriter("x = a && b", "=p") ==
        "p:1: unexpected symbol (Lua writes `and` for &&; masks take one &) near '&'");
  CHECK(message_of_rewriter("x = !y", "=p") ==
        "p:1: unexpected symbol (Lua writes `not x` for !x, and ~x for a mask) near '!'");
  CHECK(message_of_rewriter("x = y ++", "=p") == "p:1: unexpected symbol (Lua has no ++; write x = x + 1) near '+'");
  CHECK(message_of_rewriter("# x", "=p") == "p:1: unexpected symbol (comments begin with -- in Lua) near '#'");
  CHECK(message_of_rewriter("x = \\", "=p") ==
        "p:1: unexpected symbol (in Lua a line goes on in the next without a \\) near '\\'");
  CHECK(message_of_rewriter("x = \xe4", "=p") ==
        "p:1: unexpected symbol (the byte 0xE4 in column 5 is no UTF-8; save the file as UTF-8) near '<\\228>'");
}

TEST_CASE("a hint stands where the habit does, and only where the parser gave up") {
  const auto error_of = [](const std::string& source) -> std::string {
    try {
      rewriter::rewrite(source, "@p.lua");
    } catch (const rewriter::SyntaxError& error) {
      return std::to_string(error.line) + ":" + std::to_string(error.column) + " " + error.what();
    }
    return "";
  };
  CHECK(error_of("local x\n  if f(x):\n    print(x)\n    x = 1\n") ==
        "2:3 p.lua:2: Lua writes `if c then ... end` for `if c:`");
  CHECK(error_of("for i in range(3):\n  f(i)\n  g(i)\n").rfind("1:1 p.lua:1: Lua writes `for i = 0", 0) == 0);
  CHECK(error_of("local a, b = 1 ** 2, z[:, 0]").find("x ^ 2 for x ** 2") != std::string::npos);
  CHECK(error_of("local a, b = z[:, 0], 1 ** 2").find("Lua writes z[{\":\", 0}]") != std::string::npos);
  CHECK(error_of("y = x.y[f(1)][a:b, c:size(0), ...]").find("[{{a, b}, c:size(0), \"...\"}]") != std::string::npos);
  for (const char* plain :
       {"-- import torch\nx = = 1", "x = 'import torch'\ny = = 2", "--[[ for each row:\n ]]\nx = = 1",
        "if x then y() end ::done::\nx = = 1", "f(z[1]) = 2", "local continue = 1\nx = = 1"})
    CHECK_MESSAGE(error_of(plain).find(" (") == std::string::npos, plain, error_of(plain));
}

}  // namespace triage::lua::testing
