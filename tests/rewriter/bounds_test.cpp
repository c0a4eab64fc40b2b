// Bounds on the text of policies, and that the work grows with the length of the text and not with its square.
#include "bindings/lua/rewriter/syntax/bounds.h"
#include "bindings/lua/rewriter/rewriter.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace triage::lua::rewriter {
namespace {

std::string repeat(const std::string& text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

/// `text` with each '#' replaced by the number of the copy.
std::string numbered(const std::string& text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i)
    for (const char c : text) all += c == '#' ? std::to_string(i) : std::string(1, c);
  return all;
}

using Source = std::function<std::string(size_t)>;
using Constructs = std::vector<std::pair<const char*, Source>>;

std::string message_of(const std::string& source) {
  try {
    rewrite(source, "@p.lua");
    return "";
  } catch (const SyntaxError& error) {
    return error.what();
  }
}

size_t steps_of(const std::string& source) {
  size_t steps = 0;
  ParseOptions options;
  options.policy = false;
  options.charge = [&](size_t more) { steps += more; };
  rewrite(source, "@p.lua", options);
  return steps;
}

/// What has no bound of its own but those on bytes and tokens.
const Constructs& without_bound() {
  static const Constructs constructs = {
      {"statements", [](size_t n) { return repeat("a=1 ", n); }},
      {"calls", [](size_t n) { return repeat("f() ", n); }},
      {"comparisons", [](size_t n) { return "local z=1 " + repeat("z=z>0 ", n); }},
      {"ifs", [](size_t n) { return "local z=1 " + repeat("if z>0 then end ", n); }},
      {"blocks with locals", [](size_t n) { return numbered("do local a# end ", n); }},
      {"locals of many functions",
       [](size_t n) { return numbered("local function f() local a# end ", 150) + repeat("x() ", n); }},
      {"globals in nested functions",
       [](size_t n) {
         return numbered("local function f#() local a#,b#,c# ", 100) + repeat("x() ", n) + repeat("end ", 100);
       }},
      {"table items", [](size_t n) { return "local t={" + repeat("1,", n) + "}"; }},
      {"table fields", [](size_t n) { return "local t={" + numbered("a#=1,", n) + "}"; }},
      {"loops that break", [](size_t n) { return repeat("while x do break end ", n); }},
      {"functions with a goto", [](size_t n) { return repeat("f(function() goto e ::e:: end) ", n); }},
      {"semicolons", [](size_t n) { return repeat(";", n); }},
      {"protected calls", [](size_t n) { return repeat("pcall(f) ", n); }},
      {"long comment", [](size_t n) { return "--[==[" + repeat("]]", n) + "]==]"; }},
      {"long string", [](size_t n) { return "local s=[==[" + repeat("]]", n) + "]==]"; }},
      {"natural ifs", [](size_t n) { return "--!tensor\nlocal a " + repeat("if a then a=1 end ", n); }},
      {"natural and", [](size_t n) { return "--!tensor\nlocal a " + repeat("a=a and a ", n); }},
  };
  return constructs;
}

struct Bound {
  const char* what;
  size_t most;
  Source source;
};

const std::vector<Bound>& bounded() {
  using namespace bounds;
  static const std::vector<Bound> all = {
      {"bytes", kBytes, [](size_t n) { return std::string(n, ' '); }},
      {"tokens", kTokens, [](size_t n) { return repeat(";", n - 1); }},  // and the end
      {"bytes in a name", kName, [](size_t n) { return "local " + std::string(n, 'x'); }},
      {"fields and calls in one chain", kChain, [](size_t n) { return "local x = a" + repeat(".x", n); }},
      {"fields and calls in one chain", kChain, [](size_t n) { return "a" + repeat("()", n); }},
      {"fields and calls in one chain", kChain, [](size_t n) { return "a" + repeat("[1]", n - 1) + "()"; }},
      {"fields and calls in one chain", kChain, [](size_t n) { return "a" + repeat(":m()", n); }},
      {"fields and calls in one chain", kChain, [](size_t n) { return "a" + repeat("{}", n); }},
      {"fields and calls in one chain", kChain, [](size_t n) { return "function a" + repeat(".x", n) + "() end"; }},
      {"operators in a row", kOperators, [](size_t n) { return "local x = 1" + repeat("+1", n); }},
      {"operators in a row", kOperators, [](size_t n) { return "local x = z" + repeat(" and z>0", n); }},
      {"operators in a row", kOperators, [](size_t n) { return "local x = z" + repeat(" or z", n); }},
      {"`elseif` in one `if`", kArms, [](size_t n) { return "if z then" + repeat(" elseif z then", n) + " end"; }},
      {"labels, `goto` and `break` in one function", kJumps,
       [](size_t n) { return "do " + repeat("goto e ", n - 1) + "::e:: end"; }},
      {"labels, `goto` and `break` in one function", kJumps,
       [](size_t n) { return "while x do " + repeat("if x then break end ", n) + "end"; }},
      {"functions", kFunctions, [](size_t n) { return repeat("f=function() end ", n - 1); }},  // and the main one
  };
  return all;
}

}  // namespace

TEST_CASE("the text of a policy has bounds; within them it is accepted") {
  for (const Bound& bound : bounded()) {
    CAPTURE(bound.what);
    CHECK(message_of(bound.source(bound.most)) == "");
    const std::string message = message_of("\n" + bound.source(bound.most + 1));
    CHECK(message.find("p.lua:") == 0);
    CHECK(message.find("a policy may have at most " + std::to_string(bound.most) + " " + bound.what) !=
          std::string::npos);
    ParseOptions trusted;
    trusted.policy = false;
    CHECK_NOTHROW(rewrite(bound.source(bound.most + 1), "@p.lua", trusted));
  }
}

TEST_CASE("the work of parsing and rewriting grows with the length of the text") {
  constexpr size_t n = 4'000;
  constexpr double most = 2.2;  // for twice the length
  for (const auto& text : without_bound()) {
    const auto& name = text.first;
    const auto& source = text.second;
    const auto once = static_cast<double>(steps_of(source(n))), twice = static_cast<double>(steps_of(source(2 * n)));
    CHECK_MESSAGE(twice <= most * once, name << ": " << once << " steps, " << twice << " for twice the text");
  }
}

TEST_CASE("whoever asked for a rewriting can end it") {
  struct Stop {};
  ParseOptions options;
  size_t calls = 0;
  options.charge = [&](size_t) {
    if (++calls == 3) throw Stop();
  };
  CHECK_THROWS_AS(rewrite(repeat("f() ", 20'000), "@p.lua", options), Stop);
  CHECK(calls == 3);
}

}  // namespace triage::lua::rewriter
