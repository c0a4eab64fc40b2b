// What a policy file may return, and what happens when it is called: the Lua front end as a host sees it.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <limits>
#include <string>

#include "tests/lua/policies/policies.h"

using triage::Policy;
using triage::Runtime;
using triage::test::nan_value;

namespace {

Policy load_test(const std::string& source) {
  static Runtime runtime;
  return runtime.load_source(source, "test.lua");
}

template <typename E, typename Call>
void check_throws(const Call& call, const std::string& text) {
  std::string said = "(nothing was thrown)";
  try {
    call();
  } catch (const E& error) {
    said = error.what();
  }
  CHECK_MESSAGE(said.find(text) != std::string::npos, "expected '" << text << "', it said: " << said);
}

void check_refused(const std::string& source, const std::string& text) {
  check_throws<triage::LoadError>([&] { load_test(source); }, text);
}

at::Tensor batch_with_nan() { return at::tensor({1.0f, nan_value, 2.0f, 3.0f}).view({2, 2}); }

}  // namespace

TEST_CASE("the name of a policy is a line of text") {
  const std::string rest = ", inputs = {'z'}, run = function(z) return z end";
  for (const char* name : {"'a\\nb'", "'\\27[2J'", "'a\\0b'", "'\\r'", "''", "'\\127'"}) {
    check_refused("return policy { name = " + std::string(name) + rest + " }",
                  "policy: field 'name': expected one line of 1 to 255 bytes");
  }
  CHECK(load_test("return policy { name = 'repare z \xE2\x82\xAC'" + rest + " }").name() == "repare z \xE2\x82\xAC");
}

TEST_CASE("a file whose name has a line break gives its policy a name without") {
  Runtime runtime;
  CHECK(runtime.load_source("return function(z) return z end", "repair\nTrue.lua").name() == "repair_True");
}

TEST_CASE("a policy does not wait for loops of a GPU") {
  const Policy policy = load_test(
      "local f = triage.compile(function(z) return z * 2 end)\n"
      "return function(z) f:finish_compiling() return z end");
  check_throws<triage::Error>([&] { policy.run({batch_with_nan()}); }, "a policy may not wait");
}

TEST_CASE("a function is a policy, its parameters are the inputs") {
  Policy policy = load_test("return function(z, w) return z + w end");
  CHECK(policy.signature().inputs == std::vector<std::string>{"z", "w"});
  at::Tensor z = at::randn({3}), w = at::randn({3});
  CHECK(policy.run({z, w})[0].equal(z + w));
  CHECK(policy.name() == "test");
}

TEST_CASE("T31: a policy may hold a small model, which becomes part of its graph") {
  Policy policy = load_test(R"lua(
    local model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)):eval()
    model:load_state_dict({["0.weight"] = torch.ones({4, 2}), ["0.bias"] = torch.zeros({4}),
                           ["2.weight"] = torch.ones({1, 4}), ["2.bias"] = torch.ones({1})})
    return function(z)
      local f = flag_nan_and_inf(z, "z")
      z = err.take_ok_p(f, z)
      return model(z), f
    end)lua");
  for (int round = 0; round < 3; ++round) {
    const auto outputs = policy.run({batch_with_nan()});
    CHECK(outputs.at(0).detach().equal(at::tensor({1.0f, 21.0f}).view({2, 1})));
    CHECK(outputs.at(0).requires_grad());
  }
  CHECK(policy.graphs().size() == 1);
  at::NoGradGuard no_grad;
  CHECK_FALSE(policy.run({batch_with_nan()}).at(0).requires_grad());
}

TEST_CASE("T31: gradients through a policy, captured and replayed: what no branch took leaves no NaN") {
  Policy policy = load_test(R"lua(return function(z)
    local f = flag_nan_and_inf(z, "z")
    f = push(f, err.OUT_OF_BOUNDS, "z", {where = (z <= 0):any(-1)})
    return IF(err.is_ok(f), function() return z:log() end):ELSE(function() return torch.zeros_like(z) end), f
  end)lua");
  for (int round = 0; round < 3; ++round) {
    at::Tensor z = at::tensor({1.0f, 2.0f, 0.0f, 4.0f, nan_value, 1.0f}).view({3, 2}).requires_grad_();
    policy.run({z}).at(0).sum().backward();
    CHECK(z.grad().equal(at::tensor({1.0f, 0.5f, 0.0f, 0.0f, 0.0f, 0.0f}).view({3, 2})));
  }
  CHECK(policy.graphs().size() == 1);
}

TEST_CASE("T31: policies have no files and no optimizers") {
  CHECK(load_test("local there = nn.load == nil and optim == nil return function(z) return there and z or nil end")
            .run({batch_with_nan()})
            .size() == 1);
  check_refused("nn.Linear = 1 return function(z) return z end", "read-only");
  check_throws<triage::LimitError>([] { load_test("nn.Linear(1 << 40, 1 << 40) return function(z) return z end"); },
                                   "budget of tensor memory");
}

TEST_CASE("what is no policy is refused with what was expected") {
  check_refused("return 3", "the script returned a number");
  check_refused("local x = 1", "the script returned nothing");
  check_refused("return {run = function(z) return z end}", "a plain table");
  check_refused("return function(...) return ... end", "takes `...`");
  check_refused("return policy {}", "field 'run' is missing");
  check_refused("return policy {run = 1}", "field 'run': expected a function, got a number");
  check_refused("return policy {run = function(z) return z end, input = {'z'}}",
                "there is no field 'input'; did you mean 'inputs'? (fields: name, inputs, ");
  check_refused("return policy {run = function(z) return z end, inputs = {'z', 'z'}}", "names 'z' twice");
  check_refused("return policy {run = function(z) return z end, inputs = {'1z'}}", "is not a name");
  check_refused("return policy {run = function(z, p) return z end, params = {k = 'x'}}",
                "param 'k': expected a number");
  check_refused("return policy {inputs = {'k'}, run = function(k, p) return k end, params = {k = 1}}",
                "both an input and a param");
  check_refused("return function(z) return z", "test.lua:1:");
  check_refused("error('at load')", "at load");
}

TEST_CASE("a policy returns tensors, as many as it names") {
  auto run = [](const std::string& source) { return [source] { load_test(source).run({batch_with_nan()}); }; };
  check_throws<triage::PolicyError>(run("return function(z) return 3 end"), "returned a number as result 1");
  check_throws<triage::PolicyError>(run("return function(z) return z, nil end"), "returned nil as result 2");
  check_throws<triage::PolicyError>(
      run("return policy {outputs = {'z', 'f'},\nrun = function(z) return z end}"),
      "test.lua:2: `run` returned 1 value, and outputs = {\"z\", \"f\"} names 2; return all "
      "of them, as in `return z, f`");
  check_throws<triage::PolicyError>(run("return policy {outputs = {'z'},\nrun = function(z) end}"),
                                    "test.lua:2: `run` returned nothing, and outputs = {\"z\"} names 1");
  check_throws<triage::PolicyError>(
      run("return policy {outputs = {'z', 'f'},\nrun = function(z) return z, 'f' end}"),
      "test.lua:2: the policy returned a string as result 2 (f); a policy returns tensors");
}

TEST_CASE("an IF without ELSE that is returned is named with its line") {
  check_throws<triage::PolicyError>(
      [] {
        load_test("return function(z)\n  return IF(z:isnan():any(), function() return z end)\nend")
            .run({batch_with_nan()});
      },
      "test.lua:2: IF has no ELSE, so it has no value; end it with :ELSE(function() return ... end)");
}

TEST_CASE("a policy that needs a name which does not exist is refused when it loads") {
  check_refused("return function(z)\n  return flag_nan_and_imf(z, 'x')\nend",
                "test.lua:2:10: there is no 'flag_nan_and_imf' in a policy; did you mean 'flag_nan_and_inf'?");
  check_refused("return function(z)\n  local t = os.time()\n  return z\nend",
                "test.lua:2:13: policies have no 'os' (the sandbox: no os, io, debug); trusted scripts run with "
                "triage exec");
  check_refused("return function(z) return z + limt end", "there is no 'limt' in a policy");
  for (const char* fine : {"return function(z) if jit then return jit.twice(z) end return z end",
                           "return function(z) pcall(function() return os.time() end) return z end",
                           "function twice(z) return z * 2 end\nreturn function(z) return twice(z) end",
                           "_G['half'] = function(z) return z / 2 end\nreturn function(z) return half(z) end"})
    CHECK(load_test(fine).run({batch_with_nan()}).size() == 1);
}

TEST_CASE("a reload that calls a name which does not exist leaves the live version as it is") {
  Policy policy = load_test("return function(z) return z * 2 end");
  CHECK(policy.replace("return function(z) return doubel(z) end") == triage::Reload::refused);
  CHECK(policy.version().number == 1);
}

TEST_CASE("params that the policy does not have are errors, and so is a run that has no place for them") {
  check_refused("return policy {params = {limit = 2.0}, run = function(z) return z end}",
                "run(z) takes 1 parameter, and with params the last one receives them: write run = function(z, p)");
  check_throws<triage::PolicyError>(
      [] {
        load_test("return policy {params = {limit = 2.0},\nrun = function(z, p) return z * p.lmit end}")
            .run({batch_with_nan()});
      },
      "test.lua:2: there is no param 'lmit'; did you mean 'limit'?");
  CHECK(load_test("return policy {params = {limit = 2.0}, inputs = {'z'}, run = function(z) return z end}")
            .run({batch_with_nan()})
            .size() == 1);
}

TEST_CASE("an error of a policy carries file, line and traceback") {
  Policy policy =
      load_test("local function inner(z)\n  return z:no_such_op()\nend\nreturn function(z) return inner(z) end");
  try {
    policy.run({batch_with_nan()});
    FAIL("nothing was thrown");
  } catch (const triage::PolicyError& error) {
    CHECK(error.source().line == 2);
    CHECK(error.source().file == "test.lua");
    CHECK(std::string(error.what()).find("no_such_op") != std::string::npos);
    CHECK(error.traceback().find("test.lua:2") != std::string::npos);
  }
}

TEST_CASE("params change without a new graph, and stay numbers in type promotion") {
  Policy policy =
      load_test("return policy {params = {k = 2.0, n = 3, on = true}, run = function(z, p) return z * p.k + p.n end}");
  at::Tensor z = at::randn({3}, at::kFloat).to(at::kHalf);
  CHECK(policy.run({z})[0].equal(z * 2.0 + 3));
  triage::RunOptions options;
  options.params = {{"k", 5.0}};
  CHECK(policy.run({z}, options)[0].equal(z * 5.0 + 3));
  CHECK((policy.run({z}, options)[0].scalar_type() == at::kHalf));
  CHECK(policy.graphs().size() == 1);
  CHECK(policy.graph_breaks().empty());
}

TEST_CASE("a param decides a branch: read as a value, it makes the policy run as a script") {
  Policy policy = load_test(
      "return policy {params = {limit = 1.0}, run = function(z, p) if p.limit > 2 then return z * 0 end return z end}");
  at::Tensor z = at::ones({2});
  CHECK(policy.run({z})[0].equal(z));
  triage::RunOptions options;
  options.params = {{"limit", 3.0}};
  CHECK(policy.run({z}, options)[0].equal(z * 0));
  CHECK(policy.run({z})[0].equal(z));
}

TEST_CASE("outputs made by flags operations are known as flags, captured or not") {
  Policy captured = load_test("return function(z) return z, flag_nan(z, 'x') end");
  captured.run({batch_with_nan()});
  CHECK(captured.flags_outputs() == std::vector<bool>{false, true});
  Policy script =
      load_test("return function(z) local f = flag_nan(z, 'x') if has_err(f) then return z, f end return z, f end");
  script.run({batch_with_nan()});
  CHECK(script.graph_breaks().size() == 1);
  CHECK(script.flags_outputs() == std::vector<bool>{false, true});
}

TEST_CASE("a function of the host can be called, and is a graph break") {
  Runtime runtime;
  runtime.define("twice", [](const std::vector<at::Tensor>& inputs) { return std::vector<at::Tensor>{inputs[0] * 2}; });
  Policy policy = runtime.load_source("return function(z) return twice(z) end", "host.lua");
  at::Tensor z = at::randn({2});
  CHECK(policy.run({z})[0].equal(z * 2));
  CHECK(policy.run({z})[0].equal(z * 2));
  REQUIRE(policy.graph_breaks().size() == 1);
  CHECK(policy.graph_breaks()[0].find("function of the host") != std::string::npos);
}

TEST_CASE("the tests of a policy run, and say what failed") {
  Policy policy = load_test(R"(
    return policy {
      run = function(z) return z:relu() end,
      tests = {
        {name = "right", args = function() return torch.tensor({-1.0}) end, check = function(z) return z:item() == 0 end},
        {name = "wrong", args = function() return torch.tensor({-1.0}) end, check = function(z) return z:item() == 1 end},
        {name = "raises", args = function() return torch.tensor({-1.0}) end, check = function(z) error("no") end},
      },
    })");
  auto report = policy.run_tests();
  REQUIRE(report.size() == 3);
  CHECK(report[0].second.empty());
  CHECK(report[1].second.find("check returned false\nout0 = ") == 0);
  CHECK(report[2].second.find("no") != std::string::npos);
}

TEST_CASE("fullgraph makes a graph break an error that names line and hint") {
  Policy policy =
      load_test("return policy {fullgraph = true, run = function(z)\n  local n = z:sum():item()\n  return z * n\nend}");
  check_throws<triage::GraphBreakError>([&] { policy.run({batch_with_nan()}); },
                                        "test.lua:2: graph break: `item` reads a value");
}

TEST_CASE(
    "D04: a policy or its host asks that masked rows reach no gradient; a reload that does not hold it is refused") {
  const auto source = [](const std::string& result, const std::string& fields) {
    return "local w = torch.ones({2, 2}):requires_grad_()\nreturn policy {" + fields +
           " outputs = {'y'}, run = function(z)\n  local h = z:mm(w)\n  return torch.where(z:isnan():any(-1, true), "
           "0.0, " +
           result + ")\nend}";
  };
  const std::string asks = "masked_rows = 'require',", mixes = source("h - h:mean(0)", asks);
  check_throws<triage::GraphError>([&] { load_test(mixes).run({batch_with_nan()}); },
                                   "`aten::mean.dim` may mix masked rows");
  check_throws<triage::GraphError>([&] { load_test(mixes).run({batch_with_nan()}); }, "test.lua:4");
  const Policy policy = load_test(source("h", asks));
  policy.run({batch_with_nan()})[0].sum().backward();
  CHECK_FALSE(policy.unmasked_rows({batch_with_nan()}));
  CHECK(policy.replace(mixes) == triage::Reload::refused);
  CHECK(policy.replace(source("h * 2", asks)) == triage::Reload::swapped);
  triage::RuntimeOptions options;
  options.masked_rows = triage::MaskedRows::require;
  Runtime strict(options);
  const Policy held = strict.load_source(source("h - h:mean(0)", ""), "held.lua");
  check_throws<triage::GraphError>([&] { held.run({batch_with_nan()}); }, "held.lua:4");
  const at::NoGradGuard no_gradients;
  CHECK(held.run({batch_with_nan()})[0].size(0) == batch_with_nan().size(0));
  check_throws<triage::LoadError>([&] { load_test(source("h", "masked_rows = 'requires',")); }, "did you mean");
}

TEST_CASE("a runaway policy is stopped, and the next call is served") {
  triage::RuntimeOptions options;
  options.limits.instructions = 1'000'000;
  Runtime runtime(options);
  Policy policy = runtime.load_source(
      "return function(z) while z:size(0) > 1 do pcall(function() end) end return z end", "loop.lua");
  CHECK_THROWS_AS(policy.run({at::ones({2})}), triage::LimitError);
  CHECK(policy.run({at::ones({1})})[0].equal(at::ones({1})));
}

TEST_CASE("T15: an IF without ELSE is an error that names its line") {
  Policy policy =
      load_test("return function(z)\n  local chain = IF(z:isnan():any(-1), function() return z end)\n  return z\nend");
  check_throws<triage::Error>([&] { policy.run({batch_with_nan()}); }, "test.lua:2");
}

TEST_CASE("T11: a policy cannot write to its input") {
  Policy policy = load_test("return function(z) z:zero_() return z end");
  at::Tensor z = at::ones({2});
  check_throws<triage::Error>([&] { policy.run({z}); }, "would write to an input");
  CHECK(z.equal(at::ones({2})));
}

TEST_CASE("T08: a host may have filters captured that change the number of rows; a policy may not set that") {
  const Policy policy = load_test(R"lua(
    return policy {outputs = {"good", "f"}, run = function(z)
      local f = flag_nan(z, "z")
      return err.take_ok(f, z), f
    end})lua");
  triage::set_compiler_config({.capture_dynamic_output_shape_ops = true});
  for (const int64_t n : {0, 1, 2, 31, 32, 33}) {
    at::Tensor z = at::ones({n, 2});
    for (int64_t row = 0; row < n; row += 3) z[row][1] = nan_value;
    CHECK(policy.run({z})[0].size(0) == n - (n + 2) / 3);
  }
  CHECK(policy.graphs().size() == 1);
  CHECK(policy.graph_breaks().empty());
  triage::set_compiler_config({});
  CHECK(policy.run({batch_with_nan()})[0].size(0) == 1);
  CHECK_FALSE(policy.graph_breaks().empty());
  check_throws<triage::PolicyError>(
      [&] {
        load_test("return function(z) triage.config.capture_dynamic_output_shape_ops = true return z + 1 end")
            .run({batch_with_nan()});
      },
      "a policy may not change");
}
