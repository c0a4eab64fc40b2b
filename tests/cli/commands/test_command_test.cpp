// `triage test` from the outside: what it prints, its reports, how it ends.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/cli/program.h"
#include "tests/paths.h"

namespace {

constexpr const char* good = R"(return policy {
  inputs = {"z"}, outputs = {"z", "f"}, fullgraph = true,
  run = function(z)
    local f = flag_nan_and_inf(z, "logits")
    f = push(f, err.SATURATED, "logits", {where = (z > 9):any(-1)})
    return fix(z, f, "logits", {codes = {err.NAN}})
  end,
  tests = {
    { name = "zero for NaN", args = function() return torch.tensor({{1.0}, {0/0}, {math.huge}}) end,
      check = function(z) return z[1]:eq(0):all() end },
  },
}
)";

constexpr const char* uncovered = R"(return policy {
  run = function(z)
    return IF(z:isnan():any(-1), function() return torch.zeros_like(z) end)
      :ELSE(function() return z end)
  end,
  tests = {
    { name = "keeps what is fine", args = function() return torch.ones({2, 2}) end,
      check = function(y) return y:eq(1):all() end },
    { name = "is <wrong> & \"quoted\"\1", args = function() return torch.ones({2, 2}) end,
      check = function(y)
        error("no\nsuch luck]]>") end },
  },
}
)";

struct TestCommandScene {
  TemporaryFolder folder;
  TestCommandScene() {
    std::filesystem::create_directory(folder / "policies");
    write_bytes(folder / "policies/good.lua", good);
  }
  void add_bad_ones() const {
    write_bytes(folder / "policies/broken.lua", "return function(z)\n  local = 3\nend\n");
    write_bytes(folder / "policies/uncovered.lua", uncovered);
  }
  Ran operator()(const std::vector<std::string>& arguments) const { return triage_program(folder, arguments); }
};

/// Well-formed as far as this form goes: declaration, elements that close in order, attributes in quotes, entities, and
/// nothing that XML 1.0 does not allow.
bool is_well_formed(const std::string& xml) {
  if (xml.rfind("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", 0) != 0) return false;
  static const std::regex token(
      R"re(<(/?)([a-z]+)((?: [a-z]+="(?:[^"<&]|&(?:amp|lt|gt|quot|#10|#13|#9);)*")*)(/?)>|(?:[^<&]|&(?:amp|lt|gt|quot|#10|#13|#9);)+)re");
  std::vector<std::string> open;
  size_t at = xml.find('\n') + 1;
  while (at < xml.size()) {
    std::smatch match;
    const std::string rest = xml.substr(at);
    if (!std::regex_search(rest, match, token, std::regex_constants::match_continuous)) return false;
    at += static_cast<size_t>(match.length());
    if (!match[2].matched) continue;
    if (match[1].length() > 0) {
      if (open.empty() || open.back() != match[2]) return false;
      open.pop_back();
    } else if (match[4].length() == 0) {
      open.push_back(match[2]);
    }
  }
  const bool printable = std::all_of(xml.begin(), xml.end(), [](unsigned char c) { return c >= 0x20 || c == '\n'; });
  return open.empty() && printable;
}

}  // namespace

TEST_CASE("test prints each test, and for each rule the samples that took it") {
  TestCommandScene triage;
  Ran ran = triage({"test", "policies/good.lua"});
  CHECK(ran.err.empty());
  CHECK(ran.status == 0);
  CHECK(ran.out == R"(policies/good.lua
  ok      zero for NaN
    line  rule              samples that took it
       4  flag_nan_and_inf  1 INF, 1 NAN
       5  push              1 INF
       6  fix               1 NAN
1 passed, 0 failed; 3 of 3 rules took a sample
)");
}

TEST_CASE("a broken file of a folder is a failure, and the others still run") {
  TestCommandScene triage;
  triage.add_bad_ones();
  Ran ran = triage({"test", "policies"});
  CHECK(ran.err.empty());
  CHECK(ran.status == 1);
  CHECK(has(ran.out, "policies/broken.lua\n  FAIL    policies/broken.lua:2:"));
  CHECK(has(ran.out, "  ok      zero for NaN\n"));
  CHECK(has(ran.out, "        policies/uncovered.lua:11: no\n        such luck]]>\n"));
  CHECK(has(ran.out, "policies/uncovered.lua:3:12: warning: no test has a sample that IF takes\n"));
  CHECK(has(ran.out, "2 passed, 1 failed, 1 of 3 files broken; 4 of 5 rules took a sample\n"));
}

TEST_CASE("a policy that fails before its first rule is told once, and not of its rules") {
  TestCommandScene triage;
  write_bytes(
      triage.folder / "early.lua",
      "return policy { run = function(z)\n  local y = z:nonsense()\n  return fix(y, flag_nan(y, 'x'), 'x')\nend, "
      "tests = {{ name = 'one', args = function() return torch.ones({2}) end, check = function() return true end "
      "}} }");
  Ran ran = triage({"test", "early.lua"});
  CAPTURE(ran.out);
  CHECK(ran.status == 1);
  CHECK(count_of(ran.out, "early.lua:2: ") == 1);
  CHECK(!has(ran.out, "no test has a sample"));
}

TEST_CASE("a misspelt field of a test is named") {
  TestCommandScene triage;
  write_bytes(triage.folder / "typo.lua",
              "return policy { run = function(z) return z end, tests = {{ nam = 'one', args = function() return "
              "torch.ones({2}) end, check = function() return true end }} }");
  Ran ran = triage({"check", "typo.lua"});
  CAPTURE(ran.out);
  CHECK(ran.status == 1);
  CHECK(has(ran.out,
            "policy: test 1: there is no field 'nam'; did you mean 'name'? (fields: name, args, check, expect, params, "
            "state)"));
}

TEST_CASE("full coverage can be asked for") {
  TestCommandScene triage;
  write_bytes(triage.folder / "half.lua",
              "return policy { run = function(z) return torch.where(z > 0, z, 0) end, tests = {{ name = 'one', args = "
              "function() return torch.ones({2}) end, check = function(y) return y:eq(1):all() end }} }");
  CHECK(triage({"test", "half.lua"}).status == 0);
  Ran ran = triage({"test", "half.lua", "--full-coverage", "--junit", "report.xml"});
  CHECK(ran.status == 1);
  CHECK(has(ran.out, "half.lua:1:42: error: no test has a sample that torch.where (false) takes\n"));
  CHECK(has(read_bytes(triage.folder / "report.xml"), "every rule takes a sample"));
}

TEST_CASE("a policy without tests is told, and is a failure under full coverage only") {
  TestCommandScene triage;
  write_bytes(triage.folder / "plain.lua", "return function(z) return z end");
  Ran ran = triage({"test", "plain.lua"});
  CHECK(ran.status == 0);
  CHECK(has(ran.out, "the policy has no tests"));
  CHECK(triage({"test", "plain.lua", "--full-coverage"}).status == 1);
  CHECK(has(ran.out, "0 passed, 0 failed"));
}

TEST_CASE("test --json prints one object with the fields it promises") {
  TestCommandScene triage;
  triage.add_bad_ones();
  write_bytes(triage.folder / "policies/chatty.lua", "print('loading')\nreturn function(z) return z end");
  Ran ran = triage({"test", "policies", "--json"});
  CHECK(ran.status == 1);
  CHECK(has(ran.err, "loading\n"));
  nlohmann::json json = ran.json();
  CHECK(json["ok"] == false);
  CHECK(json["tests"] == 3);
  CHECK(json["failed"] == 1);
  CHECK(json["broken"] == 1);
  CHECK(json["rules"] == 5);
  CHECK(json["rules_taken"] == 4);
  REQUIRE(json["files"].size() == 4);
  CHECK(json["files"][0]["path"] == "policies/broken.lua");
  CHECK(json["files"][0]["ok"] == false);
  CHECK(json["files"][0]["error"]["line"] == 2);
  const nlohmann::json& tested = json["files"][2];
  CHECK(tested["path"] == "policies/good.lua");
  CHECK(tested["policy"] == "good");
  CHECK(tested["ok"] == true);
  CHECK(tested["graphs"] == 1);
  CHECK(tested["graph_breaks"].empty());
  CHECK(tested["uncovered"].empty());
  CHECK(tested["tests"][0]["name"] == "zero for NaN");
  CHECK(tested["tests"][0]["ok"] == true);
  CHECK(tested["rules"][2] == parse_json(R"({"line": 6, "column": 12, "rule": "fix", "samples": {"NAN": 1}})"));
  const nlohmann::json& failed = json["files"][3];
  CHECK(failed["uncovered"] == parse_json(R"([{"line": 3, "column": 12, "rule": "IF"}])"));
  CHECK(failed["tests"][1]["ok"] == false);
  CHECK(failed["tests"][1]["line"] == 11);
  CHECK(has(failed["tests"][1]["message"], "such luck"));
}

TEST_CASE("the JUnit report is well-formed XML that counts right") {
  TestCommandScene triage;
  triage.add_bad_ones();
  Ran ran = triage({"test", "policies", "--junit", "report.xml"});
  CHECK(ran.status == 1);
  const std::string xml = read_bytes(triage.folder / "report.xml");
  CAPTURE(xml);
  CHECK(is_well_formed(xml));
  CHECK(has(xml, "<testsuites name=\"triage test\" tests=\"4\" failures=\"1\" errors=\"1\""));
  CHECK(count_of(xml, "<testsuite ") == 3);
  CHECK(count_of(xml, "<testcase ") == 4);
  CHECK(count_of(xml, "<failure ") == 1);
  CHECK(count_of(xml, "<error ") == 1);
  CHECK(has(xml, "name=\"is &lt;wrong&gt; &amp; &quot;quoted&quot;\\x01\""));
  CHECK(has(xml, "such luck]]&gt;"));
  CHECK_FALSE(is_well_formed("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<a><b></a>"));
  CHECK_FALSE(is_well_formed("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<a b=\"&\"/>"));
}

TEST_CASE("wrong use of test ends with status 2") {
  TestCommandScene triage;
  std::filesystem::create_directory(triage.folder / "empty");
  for (const auto& [arguments, part] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"test", "none.lua"}, "none.lua"},
           {{"test", "empty"}, "no file ends in .lua"},
           {{"test"}, "PATHS"},
           {{"test", "policies", "--backend", "eagre"}, "did you mean \"eager\""},
           {{"test", "policies", "--batches", "1,-2"}, "--batches"},
           {{"test", "policies/good.lua", "--json", "--junit", "no/report.xml"}, "no/report.xml"},
           {{"test", "policies", "--junit", "./policies/good.lua"}, "it is the policy itself"}}) {
    const std::string expected = part;
    CAPTURE(expected);
    Ran ran = triage(arguments);
    CHECK(ran.status == 2);
    CHECK(ran.err.rfind("triage test: ", 0) == 0);
    CHECK(has(ran.err, part));
  }
}

// That each policy of the library passes: lua/policies/policy_library_test.cpp.
TEST_CASE("a policy of the library passes `triage test`, on batches of all sizes, with full coverage") {
  TestCommandScene triage;
  const std::string policy = triage::test::source_dir() + "/scripts/policies/repair_zero.lua";
  Ran ran = triage({"test", policy, "--batches", "0,1,2,31,32,33", "--full-coverage"});
  CAPTURE(ran.out);
  CHECK(ran.status == 0);
  CHECK(has(ran.out, " 0 failed; "));
}

TEST_CASE("tests that are no list are an error that says what a list of tests looks like") {
  const TestCommandScene scene;
  write_bytes(scene.folder / "policies/named.lua", R"(return policy {
  run = function(z) return z end,
  tests = { basic = function() end },
}
)");
  const Ran ran = scene({"test", "policies/named.lua"});
  CHECK(ran.status != 0);
  CHECK(has(ran.out + ran.err,
            "field 'tests': expected a list of tables, tests = { { name = \"...\", args = function()"));
  CHECK(has(ran.out + ran.err, "got the key 'basic'"));
}
