#include "bindings/lua/rewriter/prompt_lines.h"

#include <doctest/doctest.h>

#include "bindings/lua/rewriter/rewriter.h"

namespace triage::lua::rewriter {
namespace {

std::string kept(const std::string& source) { return keep_locals(source, "=line"); }

}  // namespace

TEST_CASE("the locals of a line's outermost block outlive it") {
  CHECK(kept("local x = 1") == " x=1");
  CHECK(kept("local a <const>, b = 1, 2 print(a)") == " a,b=1, 2 print(a)");
  CHECK(kept("local a, b") == " a,b=nil ");
  CHECK(kept("local x =\n  (1 + 2)\nlocal y = x") == " x=\n(1 + 2)\n y=x");
  CHECK(kept("local function f(n) local m = n return f(m) end") == "  function f(n) local m = n return f(m) end");
}

TEST_CASE("what is local to an inner block, or closed at the end, stays local") {
  for (const char* source : {"do local x = 1 end", "for i = 1, 2 do local y = i end", "if x then local z end",
                             "local guard <close> = torch.no_grad()", "local a, b <close> = 1, c", "x = 1"})
    CHECK(kept(source) == source);
}

TEST_CASE("a text that ends too early is unfinished, a wrong one is not") {
  for (const char* source : {"for i = 1, 2 do", "f(", "x =", "local t = {1,", "if x then y()", "s = [[text",
                             "--[[ note", "x = 1 +", "function f() return {", "s = 'to be\\"})
    CHECK_MESSAGE(is_unfinished(source), std::string(source));
  for (const char* source : {"x = 1", "x = )", "s = 'open", "end", "f(1))", "local 3", ""})
    CHECK_MESSAGE(!is_unfinished(source), std::string(source));
  CHECK_THROWS_AS(kept("x = )"), SyntaxError);
}

}  // namespace triage::lua::rewriter
