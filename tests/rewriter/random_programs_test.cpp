// Random programs, made of everything that the rewriter touches, behave the same rewritten and not. The seeds are
// fixed: a failure names the program.
#include <doctest/doctest.h>

#include <random>

#include "tests/rewriter/scripted.h"

namespace triage::lua::testing {
namespace {

class Writer {
 public:
  explicit Writer(unsigned seed) : random_(seed) {}

  std::string program() {
    // Every value a program meets prints without an address.
    std::string text =
        "local function try(f, ...) local function show(ok, ...) local t = table.pack(...) for i = 1, t.n do local v = "
        "t[i]"
        " t[i] = type(v) == 'table' and 'table' or type(v) == 'function' and 'function' or tostring(v) end"
        " print(ok, table.concat(t, ' ', 1, t.n)) end show(pcall(f, ...)) end\n"
        "local m = {} m.__lt = function(a, b) return rawlen(a) < 1 end m.__le = function() return nil end m.__eq = "
        "function() return 1 end"
        " m.__concat = function(a, b) return (type(a) == 'table' and 'T' or a) end m.__index = function(_, k) return k "
        "end\n"
        "local a, b, c, t, u = 1, 'two', nil, {x = 1, 5, {y = 'deep'}}, setmetatable({}, m)\ng = 3\n";
    const int count = pick(3, 8);
    for (int i = 0; i < count; i++)
      text += "try(function(...)" + gap() + block(3) + " return " + expression(4) + " end, 7, nil, 'v')\n";
    return text + "try(function() return a, b, c, g, t.x, t[1] end)\n";
  }

 private:
  // Not std::uniform_int_distribution, whose numbers are up to the standard library.
  int pick(int low, int high) { return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1)); }
  template <size_t n>
  const char* one_of(const char* const (&choices)[n]) {
    return choices[static_cast<size_t>(pick(0, static_cast<int>(n) - 1))];
  }
  std::string gap() { return one_of({" ", " ", " ", "\n", " -- c\n", " --[[ c ]] ", "\n\n"}); }

  std::string atom() {
    return one_of({"1",
                   "2.5",
                   "0",
                   "'s'",
                   "''",
                   "'10'",
                   "nil",
                   "true",
                   "false",
                   "a",
                   "b",
                   "c",
                   "t",
                   "u",
                   "g",
                   "...",
                   "t.x",
                   "t[1]",
                   "t[2].y",
                   "t.none",
                   "t.none.k",
                   "u.k",
                   "undefined",
                   "#t",
                   "{}",
                   "{1, a}",
                   "(...)",
                   "select('#', ...)",
                   "function() return a end",
                   "math.huge",
                   "-1"});
  }

  std::string expression(int depth) {
    if (depth == 0 || pick(0, 5) == 0) return atom();
    switch (pick(0, 9)) {
      case 0:
        return "not" + gap() + expression(depth - 1);
      case 1:
        return "(" + expression(depth - 1) + ")";
      case 2:
        return "-" + std::string(" ") + expression(depth - 1);
      case 3:
        return "{" + expression(depth - 1) + ", k = " + expression(depth - 1) + "}";
      case 4:
        return "(function(...)" + gap() + block(1) + " return " + expression(depth - 1) + " end)(" +
               expression(depth - 1) + ")";
      default: {
        const char* const op =
            one_of({"<", "<=", ">", ">=", "==", "~=", "and", "or", "..", "+", "<", "==", "and", "or", "..", "//"});
        return expression(depth - 1) + gap() + op + gap() + expression(depth - 1);
      }
    }
  }

  std::string block(int depth) {
    std::string text;
    const int count = pick(0, 2);
    for (int i = 0; i < count; i++) text += statement(depth) + (pick(0, 1) ? ";" : "") + gap();
    return text;
  }

  std::string statement(int depth) {
    const std::string target =
        one_of({"a", "b", "c", "g", "t.x", "t[1]", "t[2].y", "u.new", "t.none.k", "local l", "t.x, a", "a, b"});
    switch (depth > 0 ? pick(0, 7) : 0) {
      case 1:
        return "if " + expression(2) + " then " + block(depth - 1) + " elseif " + expression(2) + " then " +
               block(depth - 1) + " else " + block(depth - 1) + " end";
      case 2:
        return "for i = 1, 2 do " + block(depth - 1) + " if " + expression(2) + " then break end end";
      case 3:
        return "do local n = 0 while " + expression(2) + " do n = n + 1 " + block(depth - 1) +
               " if n > 2 then break end end end";
      case 4:
        return "do local n = 0 repeat n = n + 1 " + block(depth - 1) + " until n > 2 or " + expression(2) + " end";
      case 5:
        return "for _, v in ipairs {1, 2} do " + block(depth - 1) + " if v == 1 then goto continue end print(" +
               expression(1) + " ~= nil) ::continue:: end";
      case 6:
        return "local function f(...) " + block(depth - 1) + " return " + expression(2) + " end pcall(f, " +
               expression(1) + ")";
      default:
        return target + gap() + "=" + gap() + expression(3);
    }
  }

  std::mt19937 random_;
};

/// Addresses are all that may differ.
bool has_address(const std::string& text) { return text.find(": 0x") != std::string::npos; }

}  // namespace

TEST_CASE("random programs do the same rewritten and not") {
  int compared = 0;
  for (unsigned seed = 1; seed <= 1500; seed++) {
    const std::string program = Writer(seed).program();
    const std::string plain = run(program, "@random.lua", false);
    if (has_address(plain)) continue;
    CAPTURE(seed);
    CAPTURE(program);
    REQUIRE(run(program, "@random.lua", true) == plain);
    compared++;
  }
  CHECK(compared > 1000);
}

}  // namespace triage::lua::testing
