#include "bindings/lua/rewriter/findings/rules.h"

#include <doctest/doctest.h>

#include "bindings/lua/rewriter/rewriter.h"

namespace triage::lua::rewriter {
namespace {

/// "line:column name" of every rule.
std::string rules_of(const std::string& source) {
  std::string text;
  for (const CoverageRule& rule : find_rules(source, "@policy.lua").rules)
    text += std::to_string(rule.line) + ":" + std::to_string(rule.column) + " " + rule.name + "\n";
  return text;
}

std::string announcing(const std::string& source) { return find_rules(source, "@policy.lua").announcing; }

}  // namespace

TEST_CASE("rules are calls of the library that decide about samples, and branches, in the order of the source") {
  CHECK(rules_of("return function(z)\n"
                 "  local f = flag_nan(z, 'x')\n"
                 "  z, f = fix(z, f)\n"
                 "  local y = IF(err.has_nan(f), function() return z end)\n"
                 "    :ELIF(err.has_inf(f), function() return err.replace(z, 0, {1}) end)\n"
                 "    :ELSE(function() return torch.where(z > 0, z, 0) end)\n"
                 "  return y, push(f, err.NAN, 'x')\n"
                 "end") ==
        "2:13 flag_nan\n3:10 fix\n4:13 IF\n5:6 ELIF\n5:45 err.replace\n6:6 ELSE\n6:29 torch.where (true)\n6:29 "
        "torch.where (false)\n7:13 push\n");
}

TEST_CASE("a local that stands for a function of the library is that function; a local of the policy's own is not") {
  CHECK(rules_of("local fix, p = fix, err.push\nreturn function(z, f) return fix(z, p(f, 1)) end") ==
        "2:30 fix\n2:37 err.push\n");
  CHECK(rules_of("local function fix(z) return z end\nreturn function(z) return fix(z) end").empty());
  CHECK(rules_of("return function(z, push) return push(z), z.fix(z), z:fix(), torch.where(z) end").empty());
}

TEST_CASE("branches of natural Lua are rules") {
  const std::string source =
      "--!tensor\nreturn function(z, f)\n  if m then z = fix(z, f)\n  elseif n then\n    z = 1 else z = 2 end\n"
      "  if z == nil then return f end\nend";
  CHECK(rules_of(source) == "3:3 if\n3:17 fix\n4:10 elseif\n5:11 else\n");
  CHECK(announcing(source).find("if m then _triage_arm(0);  z =  _triage_cover(1,\"fix\",fix)(z, f)\n  elseif n then "
                                "_triage_arm(2); \n    z = 1 else _triage_arm(3);  z = 2 end") != std::string::npos);
  CHECK_NOTHROW(rewrite(announcing(source), "@policy.lua"));
}

TEST_CASE("what the tests of a policy call is no rule") {
  CHECK(
      rules_of("return policy {\n  run = function(z) return fix(z, flag_nan(z, 'x')) end,\n"
               "  tests = {{ name = 'n', args = function() return flag_inf(z, 'x') end, check = function(z, f) return "
               "err.take_ok(f, z) end }},\n}") == "2:28 fix\n2:35 flag_nan\n");
  CHECK(rules_of("local tests = {}\ntests[1] = {\n  args = function() return flag_nan(z) end,\n  check = function() "
                 "return fix() end,\n}\nreturn policy { run = function(z) return push(z) end, tests = tests }") ==
        "6:42 push\n");
}

TEST_CASE("rules announce themselves, lines stay") {
  CHECK(announcing("return function(z, f)\n  return fix(z, f)\nend") ==
        "return function(z, f)\n  return  _triage_cover(0,\"fix\",fix)(z, f)\nend");
  CHECK(announcing("return IF(c, g):ELSE(fix(h))") ==
        "return  _triage_cover(0,\"IF\",IF)(c, g):ELSE( _triage_branch(1, _triage_cover(2,\"fix\",fix)(h)))");
  CHECK(announcing("return err.map_ok(f, z, function(z) return err.replace(z, 0, {1}) end)") ==
        "return  _triage_cover(0,\"err.map_ok\",err.map_ok)(f, z, function(z) return  "
        "_triage_cover(1,\"err.replace\",err.replace)(z, 0, {1}) end)");
  CHECK_NOTHROW(rewrite(announcing("local x = z\nfix(x, f)\nreturn torch.where(a, b, c)"), "@policy.lua"));
}

TEST_CASE("rules of a text that is no Lua are an error with its place") {
  CHECK_THROWS_AS(find_rules("return function(", "@policy.lua"), SyntaxError);
}

}  // namespace triage::lua::rewriter
