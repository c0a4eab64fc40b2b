// Names of a policy's own for the free codes: where it declares them, where they are read, and whose they are.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/logs.h"
#include "tests/lua/policies/policies.h"

namespace {

using triage::CallStatistics;
using triage::Code;
using triage::CodeNames;
using triage::Policy;
using triage::Runtime;
using triage::test::batch_with_bad_values;
using triage::test::says;

/// Flags with the code that `codes` names, where a value is NaN.
std::string source_of(const std::string& codes, const std::string& name = "MISSING") {
  return "return policy {inputs = {'z'}, outputs = {'z', 'f'}, codes = {" + codes +
         "},\n  run = function(z)\n    local f = push(err.new(z), err." + name +
         ", 'rows', {where = z:isnan():any(-1)})\n    return fix(z, f, 'rows')\n  end}";
}

Runtime quiet() { return Runtime({.log = triage::test::no_log()}); }

std::string refusal_of_codes(const std::string& codes) {
  try {
    quiet().load_source("return policy {inputs = {'z'}, codes = " + codes + ",\n  run = function(z) return z end}",
                        "p.lua");
  } catch (const triage::LoadError& error) {
    return error.what();
  }
  FAIL("nothing was thrown");
  return {};
}

std::vector<std::string> codes_of(const CallStatistics& calls) {
  std::vector<std::string> names;
  for (const triage::FlagCount& count : calls.flags)
    names.push_back(count.code_name + " " + std::to_string(count.count));
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a wrong declaration of codes is an error at load that names the field, what came and the line") {
  const auto refused = [](const std::string& codes, const std::string& why) {
    CAPTURE(codes);
    const std::string message = refusal_of_codes(codes);
    CAPTURE(message);
    CHECK(says(message, "p.lua:1: policy: field 'codes': " + why));
  };
  refused("4", "expected a table of names and free codes such as { MISSING = 4 }, got ");
  refused("{'MISSING'}", "expected names as keys, as in { MISSING = 4 }, got ");
  refused("{[4] = 'MISSING'}", "expected names as keys, as in { MISSING = 4 }, got ");
  refused("{missing = 4}",
          "expected names of 1 to 64 capitals, digits and _, that begin with a capital, got 'missing'; "
          "write MISSING");
  refused("{['NOT-THERE'] = 4}",
          "expected names of 1 to 64 capitals, digits and _, that begin with a capital, got "
          "'NOT-THERE'; write NOT_THERE");
  refused("{['\\27[2J'] = 4}", "expected names of 1 to 64 capitals");
  refused("{['" + std::string(65, 'A') + "'] = 4}", "expected names of 1 to 64 capitals");
  refused("{MISSING = 5}", "'MISSING': expected one of the free codes 4, 8, 12, got 5, which is OUT_OF_BOUNDS");
  refused("{MISSING = 0}", "'MISSING': expected one of the free codes 4, 8, 12, got 0, which is OK");
  refused("{MISSING = 16}", "'MISSING': expected one of the free codes 4, 8, 12, got 16");
  refused("{MISSING = -4}", "'MISSING': expected one of the free codes 4, 8, 12, got -4");
  refused("{MISSING = 4.0}", "'MISSING': expected one of the free codes 4, 8, 12, got ");
  refused("{MISSING = '4'}", "'MISSING': expected one of the free codes 4, 8, 12, got ");
  refused("{MISSING = {4}}", "'MISSING': expected one of the free codes 4, 8, 12, got ");
  for (const char* taken : {"NAN", "WARN", "OOB", "UNDERFLOW", "CODE_8", "CODE_4"})
    refused(std::string("{") + taken + " = 4}",
            "'" + std::string(taken) + "' is a name that triage has already; choose another one");
  refused("{STALE = 4, MISSING = 4}",
          "code 4 has two names, MISSING and STALE; give one of them another of the free codes");
}

TEST_CASE("a script reads its codes by name, above the call of policy too, and in modules of its own text") {
  Runtime runtime = quiet();
  const Policy policy = runtime.load_source(
      "local MISSING <const> = err.MISSING\n"
      "return policy {outputs = {'f'}, codes = {MISSING = 4, STALE = 12}, run = function(z)\n"
      "  local f = push(err.new(z), MISSING, 'a', {where = z:isnan():any(-1)})\n"
      "  return push(f, ErrorCode.STALE, 'b', {where = (z > 5):any(-1), severity = err.ERROR})\n"
      "end,\n"
      "tests = {{name = 'names', args = function() return torch.tensor({{0/0, 9.0}}) end, check = function(f)\n"
      "  local all = flags.unpack(f, 0)\n"
      "  return all[1].code_name == 'MISSING' and all[2].code_name == 'STALE' and all[1].code == 4 and\n"
      "    ErrorCode.name(12) == 'STALE' and ErrorCode.name(8) == 'CODE_8' and\n"
      "    flags.repr(f) == 'ErrorFlags(1 samples, 2 errors: 1xMISSING, 1xSTALE @ a, b)' and\n"
      "    flags.summary(f).a.MISSING == 1\n"
      "end}}}",
      "p.lua");
  CHECK((policy.signature().codes == CodeNames{{Code{4}, "MISSING"}, {Code{12}, "STALE"}}));
  const at::Tensor f = policy.run({batch_with_bad_values(2)})[0];
  CHECK(triage::flags::repr(f) == "ErrorFlags(2 samples, 1 errors: 1xCODE_4 @ a)");
  CHECK(triage::flags::repr(f, {.codes = policy.signature().codes}) ==
        "ErrorFlags(2 samples, 1 errors: 1xMISSING @ a)");
  CHECK_THROWS_WITH_AS(runtime.load_source("return policy {outputs = {'f'}, codes = {MISSING = 4}, run = function(z)\n"
                                           "  return push(err.new(z), err.MISING, 'a') end}",
                                           "misspelt.lua"),
                       doctest::Contains("misspelt.lua:2:27: err has no 'MISING'; did you mean 'MISSING'?"),
                       triage::LoadError);
}

TEST_CASE("two calls of policy in one script share its names") {
  CHECK_THROWS_WITH_AS(
      quiet().load_source("local run = function(z) return z end\nlocal a = policy {run = run, codes = {MISSING = 4}}\n"
                          "return policy {run = run, codes = {STALE = 4}}",
                          "p.lua"),
      doctest::Contains("p.lua:3: policy: field 'codes': 'STALE' is code 4 here, and 'MISSING' is code 4 elsewhere"),
      triage::LoadError);
}

TEST_CASE("names of codes belong to the policy: two of one Runtime call a code as each likes") {
  std::mutex mutex;
  std::string lines;
  const auto log =
      std::make_shared<triage::DecisionLog>(triage::DecisionLogOptions{.on_line = [&](std::string_view line) {
        const std::lock_guard lock(mutex);
        lines += std::string(line) + "\n";
      }});
  Runtime runtime({.log = triage::test::no_log(), .decisions = log});
  const Policy a = runtime.load_source(source_of("MISSING = 4"), "a.lua");
  const Policy b = runtime.load_source(source_of("STALE = 4", "STALE"), "b.lua");
  a.run({batch_with_bad_values(2)});
  b.run({batch_with_bad_values(2)});
  CHECK(codes_of(a.statistics().total) == Names{"MISSING 1", "FALLBACK_VALUE 1"});
  CHECK(codes_of(b.statistics().total) == Names{"STALE 1", "FALLBACK_VALUE 1"});
  const std::string metrics = triage::metrics_text(runtime);
  CHECK(says(metrics,
             R"(triage_errors_total{policy="a",path="a.lua",location="rows",code="MISSING",severity="WARN"} 1)"));
  CHECK(
      says(metrics, R"(triage_errors_total{policy="b",path="b.lua",location="rows",code="STALE",severity="WARN"} 1)"));
  CHECK_FALSE(says(metrics, "CODE_4"));
  log->flush();
  const std::lock_guard lock(mutex);
  CHECK(says(lines, R"("location":"rows","code":"MISSING","severity":"WARN")"));
  CHECK(says(lines, R"("location":"rows","code":"STALE","severity":"WARN")"));
  CHECK_FALSE(says(lines, "CODE_4"));
}

TEST_CASE("a new version may call a code otherwise: what was counted keeps the name that it was counted under") {
  Runtime runtime = quiet();
  const Policy policy = runtime.load_source(source_of("MISSING = 4"), "p.lua");
  policy.run({batch_with_bad_values(2)});
  REQUIRE(policy.replace(source_of("STALE = 4", "STALE")) == triage::Reload::swapped);
  policy.run({batch_with_bad_values(2)});
  policy.run({batch_with_bad_values(2)});
  CHECK((policy.signature().codes == CodeNames{{Code{4}, "STALE"}}));
  CHECK(codes_of(policy.statistics().total) == Names{"MISSING 1", "STALE 2", "FALLBACK_VALUE 3"});
  const auto versions = policy.statistics().versions;
  REQUIRE(versions.size() == 2);
  CHECK(codes_of(versions[0].calls) == Names{"MISSING 1", "FALLBACK_VALUE 1"});
  CHECK(codes_of(versions[1].calls) == Names{"STALE 2", "FALLBACK_VALUE 2"});
  const std::string metrics = triage::metrics_text(runtime);
  CHECK(says(metrics, "code=\"MISSING\",severity=\"WARN\"} 1"));
  CHECK(says(metrics, "code=\"STALE\",severity=\"WARN\"} 2"));
}

TEST_CASE("a shadow that calls a code otherwise flags other samples: neither name stands for the other") {
  Runtime runtime = quiet();
  const Policy policy = runtime.load_source(source_of("MISSING = 4"), "p.lua");
  policy.run({batch_with_bad_values(2)});
  policy.shadow_source(source_of("STALE = 4", "STALE"), {.share = 1});
  triage::ShadowReport report;
  policy.run({batch_with_bad_values(2)});
  for (; report.compared + report.failed + report.dropped + report.not_comparable == 0; std::this_thread::yield())
    report = policy.candidate()->shadow;
  REQUIRE(report.flags.size() == 2);
  CHECK(report.flags[0].code_name == "MISSING");
  CHECK(report.flags[0].only_live == report.compared);
  CHECK(report.flags[1].code_name == "STALE");
  CHECK(report.flags[1].only_candidate == report.compared);
  CHECK(says(policy.candidate()->text(), "STALE @ rows"));
}
