// What `triage check` finds when it calls a policy with the inputs of its own tests.
#include "tests/cli/scene.h"
#include "tests/policy_library.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace {

/// Pushes `notes` entries, then one that says NaN; `fields` are further ones of the policy.
std::string noting(int notes, const std::string& fields = "") {
  return fmt::format(
      "return policy {{\n"
      "  inputs = {{'z'}}, outputs = {{'f'}}, {1}\n"
      "  run = function(z)\n"
      "    local f = err.new(z)\n"
      "    for i = 1, {0} do f = push(f, err.VALUE_CLAMPED, 'note.' .. i) end\n"
      "    return flag_nan(z, 'late', f)\n"
      "  end,\n"
      "  tests = {{{{name = 'runs', args = function() return torch.ones({{2, 2}}) end, check = function() return true "
      "end}}}},\n"
      "}}\n",
      notes, fields);
}

}  // namespace

TEST_CASE("check warns where a sample can get more entries than its record has slots") {
  const PolicyFolder folder(noting(16));
  const Ran ran = folder({"check", "repair.lua"});
  CHECK(ran.status == 0);
  CHECK(ran.out.rfind("repair.lua:6: warning: a sample can get 17 entries in 'f', whose records have 16 slots", 0) ==
        0);
  const auto json = folder({"check", "repair.lua", "--json"}).json()["files"][0];
  CHECK(json["ok"] == true);
  REQUIRE(json["warnings"].size() == 1);
  CHECK(json["warnings"][0]["line"] == 6);

  const std::string untested =
      "return function(z) local f = err.new(z) for i = 1, 17 do f = push(f, err.NAN, 'n.' .. i) end return f end\n";
  CHECK(has(PolicyFolder(untested)({"check", "repair.lua"}).out, "a sample can get 17 entries"));

  const std::string cleared =
      "return function(z) local f = err.new(z) for i = 1, 20 do f = err.clear(push(f, err.NAN, 'n.' .. i), err.NAN) "
      "end "
      "return f end\n";
  for (const std::string& fits :
       {cleared, noting(15), noting(16, "accumulation = {priority = 'severity', order = 'last'},"),
        noting(16, "accumulation = {dedupe = 'code'},"), noting(40, "accumulation = {dedupe = 'code'},")})
    CHECK(PolicyFolder(fits)({"check", "repair.lua"}).out == "repair.lua: ok\n");
}

TEST_CASE("check says nothing of a policy that fails") {
  CHECK(PolicyFolder("return function(z) error('no') end\n")({"check", "repair.lua"}).out == "repair.lua: ok\n");
  const PolicyFolder fails(
      "return policy { inputs = {'z'}, run = function(z) error('no') end,\n"
      "  tests = {{name = 't', args = function() return torch.ones({2}) end, check = function() return true "
      "end}} }\n");
  CHECK(fails({"check", "repair.lua"}).out == "repair.lua: ok\n");
}

TEST_CASE("check calls a policy within the budgets of the command line") {
  const PolicyFolder folder("return function(z) for i = 1, 2e9 do end return z end\n");
  CHECK(folder({"check", "repair.lua", "--limits", "instructions=100000"}).out == "repair.lua: ok\n");
}

TEST_CASE("check says what a promise of gradients does not cover") {
  const PolicyFolder folder(
      "return policy { inputs = {'z'}, outputs = {'z'}, verify = {gradients = true},\n"
      "  run = function(z) return z * 2 end }\n");
  const Ran ran = folder({"check", "repair.lua"});
  CHECK(ran.out.rfind("repair.lua:2: note: it promises `gradients`, which hold for its own graph", 0) == 0);
  CHECK(has(ran.out, "repair.lua: ok\n"));
  CHECK(folder({"check", "repair.lua", "--json"}).json()["files"][0]["notes"].size() == 1);
}

TEST_CASE("check warns of nothing in the library, and of no boolean that item() gives") {
  const PolicyFolder folder(
      "return function(z)\n  if not z:isnan():any():item() then z = z + 1 end\n  return z\nend\n");
  CHECK(folder({"check", "repair.lua"}).out.find("a number alone") == std::string::npos);
  for (const auto& policy : triage::test::library()) {
    const Ran ran = folder({"check", policy.string()});
    CAPTURE(ran.out);
    CHECK(ran.status == 0);
    CHECK(ran.out.find(" warning: ") == std::string::npos);
  }
}
