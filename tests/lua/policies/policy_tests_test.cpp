// What `triage test` finds out about a policy: its tests, plain and captured, and which rules took which samples.
#include "bindings/lua/testing/policy_tests.h"
#include "bindings/lua/testing/agreement.h"
#include "runtime/diagnose/bits.h"
#include "tests/lua/policies/policies.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <doctest/doctest.h>

#include <limits>

namespace triage::lua {
namespace {

using triage::test::says;

PolicyTests test_source(const std::string& source, const std::vector<int64_t>& batches = {}) {
  TestOptions options;
  options.script.path = "p.lua";
  options.script.print = [](const std::string&) {};
  options.batches = batches;
  return run_policy_tests(source, options);
}

/// A policy of one test.
PolicyTests test_policy(const std::string& run, const std::string& args, const std::string& check = "return true",
                        const std::vector<int64_t>& batches = {}) {
  return test_source("return policy { run = function(z)\n" + run + "\nend, tests = {{ name = 'it', args = function() " +
                         args + " end, check = function(y, f) " + check + " end }} }",
                     batches);
}

/// "line name: 2 NAN 1 ok" a rule.
std::string rules_of(const PolicyTests& report) {
  std::string text;
  for (const auto& taken : report.rules) {
    text += std::to_string(taken.rule.line) + " " + taken.rule.name + ":";
    for (const auto& [name, count] : taken.samples) text += " " + std::to_string(count) + " " + name;
    text += "\n";
  }
  return text;
}

const std::string four = "return torch.tensor({{1.0, 2.0}, {0/0, 1.0}, {math.huge, 1.0}, {0/0, math.huge}})";

}  // namespace

TEST_CASE("rules count the samples they take, by the first code of each") {
  PolicyTests report = test_policy(
      "local f = flag_nan_and_inf(z, 'x')\n"
      "z = err.replace(z, 5.0, {err.INF})\n"
      "local y, f2 = fix(z, f, 'x', {codes = {err.NAN}})\n"
      "f2 = push(f2, err.SATURATED, 'x', {where = y[{':', 0}] > 4})\n"
      "return y, f2",
      four);
  REQUIRE(report.tests[0].failure == "");
  CHECK(rules_of(report) ==
        "2 flag_nan_and_inf: 1 INF 2 NAN\n3 err.replace: 1 INF 1 NAN\n4 fix: 2 NAN\n5 push: 1 INF\n");
  CHECK(report.graphs == 1);
  CHECK(report.graph_breaks.empty());
}

TEST_CASE("T15: of a chain, each sample takes one branch, and rules inside count only for it") {
  PolicyTests report = test_policy(
      "local f = flag_nan_and_inf(z, 'x')\n"
      "local y, g = IF(err.has_nan(f), function() return fix(z, f, 'x') end)\n"
      ":ELIF(err.has_inf(f), function() return z, push(f, err.SATURATED, 'x') end)\n"
      ":ELSE(function()\nlocal w = IF(z:sum(-1) > 100, function() return z * 0 end):ELSE(function() return z end)\n"
      "return w, f end)\nreturn y, g",
      four);
  REQUIRE(report.tests[0].failure == "");
  CHECK(rules_of(report) ==
        "2 flag_nan_and_inf: 1 INF 2 NAN\n3 IF: 2 NAN\n3 fix: 2 NAN\n4 ELIF: 1 INF\n4 push: 1 INF\n5 ELSE: 1 ok\n"
        "6 IF:\n6 ELSE: 1 ok\n");
}

TEST_CASE("T15: a condition for the whole batch is taken by all or none") {
  PolicyTests report = test_policy(
      "local f = flag_nan(z, 'x')\n"
      "return IF(HAS(f), function() return z * 0, f end)\n:ELSE(function() return z, f end)",
      four);
  REQUIRE(report.tests[0].failure == "");
  CHECK(rules_of(report) == "2 flag_nan: 2 NAN\n3 IF: 2 NAN 2 ok\n4 ELSE:\n");
}

TEST_CASE("a policy returns any number of guarded tensors, each as its data and its flags") {
  for (const int count : {1, 30, 190}) {
    CAPTURE(count);
    std::string locals, results = "x";
    for (int i = 0; i < 60; ++i) locals += "local a" + std::to_string(i) + " = 0\n";  // the stack is large by now
    for (int i = 1; i < count; ++i) results += ", x";
    const PolicyTests tests =
        test_policy(locals + "local x = flag_nan(guard(z), 'x')\nreturn " + results,
                    "return torch.tensor({{1.0}, {0 / 0}})", "return flags.repr(f):find('1xNAN', 1, true) ~= nil");
    CHECK(tests.tests.at(0).failure == "");
  }
}

TEST_CASE("T11 T12: combinators, guards and chains count, and the functions inside for their samples only") {
  PolicyTests report = test_policy(
      "local f = flag_nan(z, 'x')\n"
      "z = err.map_err(f, z, function(x) return err.replace(x, 0.0, {err.NAN, err.INF}) end)\n"
      "f = err.guard(f, z, function(x) return x:sum(-1) < 10 end, err.OVERFLOW, 'x')\n"
      "z, f = err.and_then(f, z, function(x) return x * 2, push(err.new(x), err.SATURATED, 'x', {severity = 1}) end)\n"
      "f = err.map_err_flags(f, function(g) return err.push_scalar(g, err.UNKNOWN, 'y') end)\n"
      "z, f = err.recover_with_fallback(f, z, 1.0, 'x')\n"
      "return z, f",
      four);
  REQUIRE(report.tests[0].failure == "");
  CHECK(rules_of(report) ==
        "2 flag_nan: 2 NAN\n3 err.map_err: 2 NAN\n3 err.replace: 2 NAN\n4 err.guard: 1 OVERFLOW\n"
        "5 err.and_then: 1 SATURATED\n5 push: 1 SATURATED\n6 err.map_err_flags: 2 NAN 1 OVERFLOW 1 SATURATED\n"
        "6 err.push_scalar: 2 NAN 1 OVERFLOW 1 SATURATED\n"
        "7 err.recover_with_fallback: 2 NAN 1 OVERFLOW 1 SATURATED\n");
}

TEST_CASE("an expanded tensor counts with all its elements, before anything of it is copied") {
  const std::string small = "return torch.ones({2, 2})", large = "return torch.ones({1}):expand({3000000000})";
  const auto failure = [](const PolicyTests& report) { return report.tests.at(0).failure; };
  CHECK(says(failure(test_policy("return z * 2", large)),
             "`args` returned tensors of 11444 MiB (an expanded tensor counts in full)"));
  CHECK(says(failure(test_policy("return z[0] + 1", "return torch.ones({1}):expand({500000000})")),
             "may have 512 MiB, an eighth of the budget of tensor memory"));
  CHECK(says(failure(test_policy("return (z:sum() * 0):expand({3000000000})", small)),
             "it returned tensors of 11444 MiB (an expanded tensor counts in full)"));
  CHECK(says(
      failure(test_policy("return (z * 1):expand({3000000000})", "return torch.ones({1}, {requires_grad = true})")),
      "it returned tensors of 11444 MiB"));
  const std::string on_batch =
      failure(test_policy("return z:sum(-1)", "return torch.ones({1, 1000000})", "return true", {1, 100000}));
  CHECK(says(on_batch, "on a batch of 100000: the inputs would be tensors of 381470 MiB"));
}

TEST_CASE("of very many samples it is counted how many a rule takes, not which") {
  const PolicyTests report = test_policy("return push(err.new_t(200000), err.NAN, 'x')", "return torch.ones({2})");
  CHECK(report.tests.at(0).failure == "");
  CHECK(rules_of(report) == "2 push: 200000 any\n");
}

TEST_CASE("gradients of a test end within its budget") {
  TestOptions options;
  options.script.path = "p.lua";
  options.script.limits.seconds = 1;
  const PolicyTests report = run_policy_tests(
      "return policy { run = function(z) for i = 1, 3000 do z = z:narrow(0, 0, 4000000) end return z end,\n"
      "tests = {{ name = 'it', args = function() return torch.zeros({4000000}, {requires_grad = true}) end,\n"
      "check = function() end }} }",
      options);
  CHECK(says(report.tests.at(0).failure, "deadline"));
}

TEST_CASE("what a check was not content with is shown by its first rows, flags too") {
  const PolicyTests report =
      test_policy("local f = push(err.new_t(1), err.NAN, 'x') return f:expand({5000, f:size(1)})",
                  "return torch.ones({2, 2})", "return false");
  CHECK(says(report.tests.at(0).failure,
             "ErrorFlags(1000 samples, 1000 errors: 1000xNAN @ x) (the first 1000 of 5000 rows)"));
}

TEST_CASE("a rule in a loop counts a sample once") {
  PolicyTests report = test_policy(
      "local f = flag_nan_and_inf(z, 'x')\n"
      "for i = 1, 3 do z = torch.where(z > 2 + i, z, 0) end\nreturn z, f",
      "return torch.tensor({{5.5, 9.0}, {0.0, 1.0}})");
  REQUIRE(report.tests[0].failure == "");
  CHECK(rules_of(report) == "2 flag_nan_and_inf:\n3 torch.where (true): 1 ok\n3 torch.where (false): 1 ok\n");
}

TEST_CASE("a rule that chooses by element took each sample that has such an element") {
  PolicyTests report = test_policy(
      "local f = err.new(z)\n"
      "local y = WHERE(z > 2, function() return torch.where(z > 8, 8, z) end, 0)\n"
      "y = IF(y > 7, function() return y * 2 end):ELIF(y > 5, function() return y + 1 end):ELSE(function() return y "
      "end)\n"
      "return y, f",
      "return torch.tensor({{5.5, 9.0}, {0.0, 1.0}, {3.0, 4.0}})");
  REQUIRE(report.tests[0].failure == "");
  CHECK(rules_of(report) ==
        "3 WHERE (true): 2 ok\n3 WHERE (false): 1 ok\n3 torch.where (true): 1 ok\n3 torch.where (false): 2 ok\n"
        "4 IF: 1 ok\n4 ELIF: 1 ok\n4 ELSE: 2 ok\n");
}

TEST_CASE("a policy without flags, a rule in a helper that only the tests use, and names of the policy's own") {
  PolicyTests report = test_source(
      "local function bad() return fix(torch.ones({2, 2}), err.new_t(2), 'x') end\n"
      "local where = torch.where\n"
      "return policy { run = function(z) return where(z > 1, z, 0) end,\n"
      "tests = {{ args = function() return (bad()) + 1 end, check = function(y) return y:eq(2):all() end }} }");
  REQUIRE(report.tests.size() == 1);
  CHECK(report.tests[0].name == "test 1");
  CHECK(report.tests[0].failure == "");
  CHECK(rules_of(report) == "3 torch.where (true): 2 any\n3 torch.where (false):\n");
}

TEST_CASE("tests fail with what is wrong and where, and do not keep the next from running") {
  PolicyTests report = test_source(
      "return policy { run = function(z) return z end, tests = {\n"
      "{ args = function() return torch.ones({2}) end, check = function(z) return false end },\n"
      "{ args = function() return torch.ones({2}) end, check = function(z) return z end },\n"
      "{ args = function() return torch.ones({2}) end, check = function(z) return nil end },\n"
      "{ args = function() return torch.ones({2}) end, check = function(z) assert(z:eq(1):all()) end },\n"
      "{ args = function() return torch.ones({2}) end,\n check = function(z)\n error('no') end },\n"
      "{ args = function() return 3 end, check = function(z) return true end },\n"
      "{ args = function() end, check = function(z) return true end },\n"
      "} }");
  REQUIRE(report.tests.size() == 7);
  CHECK(says(report.tests[0].failure, "check returned false\nout0 = "));
  CHECK(report.tests[0].line == 2);
  CHECK(says(report.tests[1].failure, "a tensor of 2 elements"));
  CHECK(says(report.tests[2].failure, "check returned nil"));
  CHECK(report.tests[3].failure == "");
  CHECK(says(report.tests[4].failure, "p.lua:8: no"));
  CHECK(report.tests[4].line == 8);
  CHECK(says(report.tests[5].failure, "`args` returned a number as value 1"));
  CHECK(says(report.tests[6].failure, "returned 0 values, the policy takes 1 inputs"));
}

TEST_CASE("a policy that answers otherwise when it is captured fails its test") {
  PolicyTests report =
      test_policy("if triage.is_compiling() then return z + 1 end return z", "return torch.ones({3, 2})");
  CHECK(says(report.tests[0].failure, "output 'out0' differs in sample 0: 1 as a plain script, 2 captured"));
  CHECK(
      says(test_policy("if triage.is_compiling() then return z:to(torch.float64) end return z", four).tests[0].failure,
           "is Float[4, 2] on cpu as a plain script and Double[4, 2] on cpu captured"));
}

TEST_CASE("gradients are compared too, random numbers are the same, and an error of the policy is its test's failure") {
  const std::string leaf = "return torch.ones({3, 2}, {requires_grad = true})";
  CHECK(test_policy("return z * z", leaf).tests[0].failure == "");
  CHECK(says(test_policy("if triage.is_compiling() then return z * 1 end return z:pow(2)", leaf).tests[0].failure,
             "gradient 0 differs"));
  CHECK(test_policy("return z + torch.randn_like(z)", "return torch.randn({3, 2})").tests[0].failure == "");
  CHECK(says(test_policy("return z:no_such()", four).tests[0].failure, "p.lua:2"));
}

TEST_CASE("a policy with a graph break runs as a script, and says so") {
  PolicyTests report = test_policy("return z * z:sum():item()", "return torch.ones({2, 2})");
  CHECK(report.tests[0].failure == "");
  REQUIRE(report.graph_breaks.size() == 1);
  CHECK(says(report.graph_breaks[0], "p.lua:2"));
}

TEST_CASE("a test may run on other batches as well") {
  const std::string run = "local f = flag_nan(z, 'x')\nreturn fix(z, f, 'x')";
  CHECK(test_policy(run, four, "return true", {0, 1, 2, 31, 32, 33}).tests[0].failure == "");
  CHECK(says(test_policy("return z:reshape({4, 2})", four, "return true", {4, 5}).tests[0].failure,
             "on a batch of 5: p.lua:2"));
}

TEST_CASE("a rule that cannot be watched is told, not hidden") {
  PolicyTests report =
      test_policy("local fix = fix\nfix = function(a) return a end\nreturn fix(z)", "return torch.ones({2})");
  CHECK(report.tests[0].failure == "");
  CHECK(says(report.coverage_error, "argument 'flags': expected Tensor, got nil"));
}

TEST_CASE("the fields of a test are its own, and its name is a line") {
  const std::string synthetic =
      "return policy { run = function(z) return z end, tests = { setmetatable({%s args = function() return "
      "torch.ones({1}) end, check = function() return true end}, {__index = function(t, k) while true do end end}) } }";
  const auto with = [&](const std::string& fields) {
    std::string source = synthetic;
    return source.replace(source.find("%s"), 2, fields);
  };
  CHECK(test_source(with("")).tests.at(0).name == "test 1");
  CHECK(test_source(with("params = setmetatable({}, {__index = function() while true do end end}),")).tests.size() ==
        1);
  CHECK(test_source(with("name = 'one\\n  ok      two',")).tests.at(0).name == "one\\n  ok      two");
  const PolicyTests changed = test_source(
      "local tests = {{name = 'a', args = function() return torch.ones({1}) end, check = function() return true end}}\n"
      "tests[1].args = function() tests[1].check = nil tests[1].name = {} return torch.ones({1}) end\n"
      "return policy { run = function(z) return z end, tests = tests }");
  CHECK_FALSE(changed.tests.at(0).failure.empty());
}

TEST_CASE("what a test switches on does not outlive it") {
  const bool grad = c10::GradMode::is_enabled();
  const PolicyTests report = test_source(
      "return policy { run = function(z) return z end, tests = {\n"
      "{name = 'leaves', args = function() A, B = torch.no_grad(), torch.autocast('cpu') return torch.ones({1}) end,\n"
      " check = function() C = torch.no_grad() return true end},\n"
      "{name = 'finds', args = function() assert(torch.is_grad_enabled()) local x = torch.ones({2, 2})\n"
      "  assert(x:matmul(x).dtype == torch.float32) return torch.ones({1}) end, check = function() return true end}} "
      "}");
  for (const auto& test : report.tests) CHECK(test.failure == "");
  CHECK(c10::GradMode::is_enabled() == grad);
  CHECK((at::ones({2, 2}).matmul(at::ones({2, 2})).scalar_type() == at::kFloat));
}

TEST_CASE("a file that cannot be loaded throws") {
  CHECK_THROWS_AS(test_source("return 3"), LoadError);
  CHECK_THROWS_AS(test_source("error('at load')"), LoadError);
}

TEST_CASE("bits are compared as bits, but one NaN is like another") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(diagnose::same_bits(at::tensor({1.0f, nan}), at::tensor({1.0f, -nan})));
  CHECK_FALSE(diagnose::same_bits(at::tensor({0.0f}), at::tensor({-0.0f})));
  CHECK_FALSE(diagnose::same_bits(at::tensor({1.0f, nan}), at::tensor({nan, 1.0f})));
  CHECK(diagnose::same_bits(at::ones({2}, at::kHalf), at::ones({2}, at::kHalf)));
  CHECK(diagnose::same_bits(at::ones({2}, at::kComplexFloat), at::ones({2}, at::kComplexFloat)));
  CHECK_FALSE(diagnose::same_bits(at::zeros({2}, at::kComplexDouble), at::ones({2}, at::kComplexDouble)));
  CHECK(diagnose::same_bits(at::ones({2}, at::kBool), at::ones({2}, at::kBool)));
}

}  // namespace triage::lua
