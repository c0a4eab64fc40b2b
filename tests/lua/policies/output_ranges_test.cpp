// Outputs with a declared range: what of a call's answer is not within it is flagged, counted, told, and handled.
#include "tests/logs.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <triage/triage.h>

#include <array>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace triage::test {
namespace {

constexpr double inf = INFINITY;

/// `range` declares z; `rest` are further fields of the policy.
std::string source(const std::string& range, const std::string& body, const std::string& rest = "") {
  return fmt::format(
      "return policy {{ inputs = {{'x'}}, outputs = {{ {{name = 'z', {}}}, 'f' }}, {}\n"
      "  run = function(x)\n    local f = err.new(x)\n    {}\n  end }}",
      range, rest, body);
}

std::string entries(const at::Tensor& f, int64_t sample) {
  std::string text;
  for (const flags::UnpackedError& entry : flags::unpack(f, sample))
    text += fmt::format("{}{} {} @ {}", text.empty() ? "" : ", ", entry.severity_name, entry.code_name,
                        entry.location_name);
  return text;
}

uint64_t violations_of(const Policy& policy, const std::string& output = "z") {
  for (const ViolationCount& count : policy.statistics().total.violations)
    if (count.output == output) return count.samples;
  return ~uint64_t{0};
}

at::Tensor odd_strides(int64_t rows, int64_t columns = 7) {
  at::Tensor wide = at::randn({rows, 2 * columns});
  return wide.as_strided({rows, columns}, {2 * columns, 2});
}

/// Rows at the ends of a batch and in between hold what a range must find, or leave.
at::Tensor with_rare_values(at::Tensor x) {
  const double rare[] = {NAN, inf, -inf, 0.0, -0.0, 1e-40, 3e38, -3e38, 1.0};
  for (int64_t row = x.size(0) - 1, i = 0; row >= 0; row -= 4, ++i)
    x[row][(row * 3) % x.size(1)] = rare[static_cast<size_t>(i) % std::size(rare)];
  return x;
}

}  // namespace

TEST_CASE("declared ranges: samples out of them are flagged and counted, others keep their bits") {
  struct Case {
    const char* range;
    std::vector<double> bad;  // one sample each
    const char* entry;
  };
  const Case cases[] = {
      {"finite = true", {NAN}, "CRITICAL NAN @ output.z"},
      {"finite = true", {inf, -inf}, "CRITICAL INF @ output.z"},
      {"min = -100", {-101, -1e30}, "CRITICAL OUT_OF_BOUNDS @ output.z"},
      {"min = -100, max = 100", {NAN}, "CRITICAL NAN @ output.z"},
      {"max = 100, finite = true", {-inf}, "CRITICAL INF @ output.z"},
      {"max = math.huge", {NAN}, "CRITICAL NAN @ output.z"},
  };
  for (const std::string backend : {"eager", "aot_eager", "fused"})
    for (const Case& one : cases)
      for (const int64_t rows : {0, 1, 2, 31, 32, 33}) {
        CAPTURE(backend);
        CAPTURE(one.range);
        CAPTURE(rows);
        Runtime runtime({.log = no_log(), .backend = backend, .fullgraph = true});
        const std::string body = "return x + 0.25, f";
        const Policy policy = runtime.load_source(source(one.range, body), "ranged.lua");
        const Policy plain = runtime.load_source(
            "return policy { inputs = {'x'}, outputs = {'z', 'f'}, run = function(x) local f = "
            "err.new(x) return x + 0.25, f end }",
            "plain.lua");
        const at::Tensor x = odd_strides(rows);
        uint64_t expected = 0;
        for (size_t i = 0; i < one.bad.size() && static_cast<int64_t>(i) < rows; ++i, ++expected)
          x[rows - 1 - static_cast<int64_t>(i)][static_cast<int64_t>(3 * i)] = one.bad[i];
        for (int call = 1; call <= 3; ++call) {
          RunInfo info;
          const auto [z, f] = policy.run<2>({x}, {.info = &info});
          CHECK(at::equal(z.view({-1}).view(at::kInt), plain.run({x})[0].view({-1}).view(at::kInt)));
          CHECK(info.violations == static_cast<int64_t>(expected));
          CHECK(violations_of(policy) == expected * static_cast<uint64_t>(call));
          for (int64_t row = 0; row < rows; ++row)
            CHECK(entries(f, row) == (row >= rows - static_cast<int64_t>(expected) ? one.entry : ""));
        }
      }
}

TEST_CASE("declared ranges: loops flag what the eager backend does, whatever makes the output and whatever its range") {
  Runtime eager({.log = no_log(), .backend = "eager"}), fused({.log = no_log(), .backend = "fused"});
  for (const char* const body : {"x", "x * 0.5 + 1", "x:abs()", "x:sigmoid()", "x:tanh()", "x:clamp(0, 1)",
                                 "x:clamp(0, 1):half():float()", "x:softmax(-1)"})
    for (const char* const range :
         {"finite = true", "min = 0, max = 1", "min = -1, max = 2, finite = true", "min = -0.0", "max = 1",
          "min = 1, max = 2", "min = 1, max = 1", "min = -2, max = -1", "min = -math.huge, max = math.huge"}) {
      CAPTURE(body);
      CAPTURE(range);
      const std::string text = source(range, fmt::format("return {}, f", body));
      const Policy one = eager.load_source(text, "eager.lua"), other = fused.load_source(text, "fused.lua");
      for (const int64_t columns : {7, 130})
        for (const int64_t rows : {0, 1, 2, 31, 32, 33, 70}) {
          const at::Tensor x = with_rare_values(odd_strides(rows, columns));
          RunInfo wanted, got;
          const at::Tensor f = one.run({x}, {.info = &wanted})[1];
          CHECK(at::equal(f, other.run({x}, {.info = &got})[1]));
          CHECK(wanted.violations == got.violations);
        }
    }
}

TEST_CASE("declared ranges hold for every dtype and shape of an output") {
  struct Case {
    const char* range;
    at::Tensor x;
    std::vector<int64_t> bad;
  };
  const at::Tensor floats = at::tensor({0.5F, 2.0F, -1.0F, 1.0F});
  at::Tensor many = at::zeros({4, 2, 3, 2});
  many[2][1][2][0] = 7;
  at::Tensor complex = at::ones({3, 2}, at::kComplexFloat);
  complex[1][1] = c10::complex<float>(1.0F, INFINITY);
  at::Tensor half = at::zeros({3, 2}, at::kHalf);
  half[0][1] = INFINITY;
  const Case cases[] = {
      {"min = 0, max = 1", floats, {1, 2}},
      {"min = 0, max = 1", floats.to(at::kDouble), {1, 2}},
      {"min = 0, max = 1", floats.to(at::kBFloat16).reshape({4, 1}), {1, 2}},
      {"min = 0, max = 1", floats.to(at::kLong), {1, 2}},
      {"min = 0", at::tensor({9007199254740993L, -1L}), {1}},
      {"max = 5", many, {2}},
      {"finite = true", complex, {1}},
      {"finite = true, min = 0", half, {0}},
      {"finite = true", floats.to(at::kInt), {}},
      {"finite = true", at::zeros({3, 0}), {}},
      {"min = 0, max = 1", at::zeros({3, 0}), {}},
      {"max = 0.1", at::full({2, 2}, 0.1F), {}},  // 0.1 as the element holds it
  };
  for (const std::string backend : {"eager", "fused"})
    for (const Case& one : cases) {
      CAPTURE(backend);
      CAPTURE(one.range);
      CAPTURE(one.x);
      Runtime runtime({.log = no_log(), .backend = backend});
      const Policy policy = runtime.load_source(source(one.range, "return x, f"), "ranged.lua");
      for (int call = 0; call < 2; ++call) {
        const at::Tensor f = policy.run({one.x})[1];
        const at::Tensor bad = err::is_err(f).nonzero().flatten();
        CHECK(std::vector<int64_t>(bad.data_ptr<int64_t>(), bad.data_ptr<int64_t>() + bad.numel()) == one.bad);
      }
    }
}

TEST_CASE("declared ranges: bounds are numbers, also where the dtype of an output cannot hold them") {
  struct Case {
    const char* range;
    at::Tensor x;
    bool inside;
  };
  const auto ones = [](at::ScalarType dtype) { return at::ones({2, 2}, dtype); };
  at::Tensor half_inf = ones(at::kHalf), inf = ones(at::kFloat);
  half_inf.fill_(INFINITY);
  inf.fill_(INFINITY);
  const Case cases[] = {
      {"min = -1, max = 300", ones(at::kByte), true},
      {"min = 200", at::zeros({2, 2}, at::kChar), false},
      {"max = 200", ones(at::kChar), true},
      {"max = 3000000000", ones(at::kInt), true},
      {"max = math.maxinteger", ones(at::kInt), true},
      {"max = 1e9", at::full({2, 2}, 1000000001, at::kInt), false},
      {"max = 0.5", ones(at::kLong), false},
      {"min = 0.5, max = 1.5", ones(at::kLong), true},
      {"min = -math.huge", ones(at::kLong), true},
      {"min = 1", ones(at::kBool), true},
      {"max = 70000", half_inf, false},
      {"max = 70000", ones(at::kHalf), true},
      {"max = 1e39", inf, false},
      {"max = 1e39", ones(at::kBFloat16), true},
  };
  for (const std::string backend : {"eager", "fused"})
    for (const Case& one : cases) {
      CAPTURE(backend);
      CAPTURE(one.range);
      CAPTURE(one.x);
      Runtime runtime({.log = no_log(), .backend = backend});
      const Policy policy = runtime.load_source(source(one.range, "return x, f"), "ranged.lua");
      for (int call = 0; call < 2; ++call) CHECK(err::all_ok(policy.run({one.x})[1]).item<bool>() == one.inside);
    }
}

TEST_CASE("on_violation = pass_through: flags that are an input and an output keep what was pushed") {
  Runtime runtime({.log = no_log()});
  const Policy policy = runtime.load_source(
      "return policy { inputs = {'z', 'f'}, outputs = { {name = 'z', max = 1}, 'f' }, on_violation = 'pass_through',\n"
      "  run = function(z, f) return z * 4, push(f, err.SATURATED, 'mine') end }",
      "chain.lua");
  const at::Tensor z = at::ones({2, 2});
  const auto [y, f] = policy.run<2>({z, err::new_(z)});
  CHECK(at::equal(y, z));
  CHECK(entries(f, 1) == "WARN SATURATED @ mine, CRITICAL OUT_OF_BOUNDS @ output.z");
}

TEST_CASE("violations are counted of answers that hosts get, whatever version gives them") {
  Runtime runtime({.log = no_log(), .trial_calls = 0});
  const std::string fields = "on_error = 'last_good', ";
  const Policy policy = runtime.load_source(source("max = 1", "return x * 4, f", fields), "counted.lua");
  RunInfo info;
  policy.run({at::ones({2, 2})}, {.info = &info});
  CHECK(violations_of(policy) == 2);
  REQUIRE(policy.replace(source("max = 1", "if x:sum():item() > 0 then error('no') end return x, f", fields)) ==
          Reload::swapped);
  policy.run({at::ones({2, 2})}, {.info = &info});
  CHECK(info.answered == Answered::last_good);
  CHECK(info.violations == 2);
  CHECK(violations_of(policy) == 4);
}

TEST_CASE("on_violation = revert: a shadow that leaves its range has failed") {
  Runtime runtime({.log = no_log()});
  const Policy policy = runtime.load_source(source("finite = true", "return torch.nan_to_num(x), f"), "shadow.lua");
  const at::Tensor x = at::full({2, 2}, NAN);
  policy.run({x});
  policy.shadow_source(source("finite = true", "return x * 1, f", "on_violation = 'revert',"), {.share = 1});
  for (int call = 0; call < 500 && policy.candidate()->shadow.failed == 0; ++call) {
    policy.run({x});
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  CHECK(policy.candidate()->shadow.failed > 0);
}

TEST_CASE("declared ranges: a scalar output belongs to no sample: it is counted, and flags nothing") {
  Runtime runtime({.log = no_log()});
  const Policy policy = runtime.load_source(source("max = 1", "return x:sum(), f"), "sum.lua");
  for (const int64_t rows : {1, 3}) CHECK(err::all_ok(policy.run({at::ones({rows, 2})})[1]).item<bool>());
  CHECK(violations_of(policy) == 2);
}

TEST_CASE("declared ranges: what an output of a sparse tensor or of complex numbers cannot have is an error") {
  Runtime runtime({.log = no_log()});
  const Policy policy = runtime.load_source(source("min = 0", "return x, f"), "complex.lua");
  CHECK_THROWS_WITH_AS(policy.run({at::ones({2, 2}, at::kComplexFloat)}),
                       doctest::Contains("the output 'z' has a declared range, and has complex numbers"), PolicyError);
}

TEST_CASE("declared ranges: an entry in a full record takes the place of a weaker one") {
  Runtime runtime({.log = no_log()});
  const Policy policy = runtime.load_source(
      source("finite = true", "for i = 1, 20 do f = push(f, err.VALUE_CLAMPED, 'note.' .. i) end return x, f"),
      "notes.lua");
  const at::Tensor x = at::tensor({1.0F, NAN}).reshape({2, 1});
  const at::Tensor f = policy.run({x})[1];
  CHECK(err::has_critical(f)[1].item<bool>());
  CHECK_FALSE(err::has_critical(f)[0].item<bool>());
  CHECK(policy.statistics().total.full == 2);
  CHECK(flags::repr(f).find("; 2 records are full)") != std::string::npos);
}

TEST_CASE("on_violation = pass_through: rows of such samples are those of the input, donated or not") {
  for (const std::string backend : {"eager", "fused"})
    for (const bool donate : {false, true}) {
      CAPTURE(backend);
      CAPTURE(donate);
      Runtime runtime({.log = no_log(), .backend = backend});
      const Policy policy = runtime.load_source(
          "return policy { inputs = {'z'}, outputs = { {name = 'z', max = 10}, 'f' }, on_violation = 'pass_through',\n"
          "  run = function(z) return z * 4, err.new(z) end }",
          "pass.lua");
      for (int call = 0; call < 3; ++call) {
        const at::Tensor z = at::tensor({1.0F, 2.0F, 3.0F, 4.0F}).reshape({4, 1}).repeat({1, 600});
        RunOptions options;
        if (donate) options.donate = {0};
        const auto [y, f] = policy.run<2>({z}, options);
        CHECK(at::equal(y.select(1, 0), at::tensor({4.0F, 8.0F, 3.0F, 4.0F})));
        CHECK(at::equal(err::is_err(f), at::tensor({0, 0, 1, 1}).to(at::kBool)));
      }
    }
}

TEST_CASE("on_violation = pass_through: rows that pass have the gradient of the input") {
  Runtime runtime({.log = no_log()});
  const Policy policy = runtime.load_source(
      "return policy { inputs = {'z'}, outputs = { {name = 'z', max = 10} }, on_violation = 'pass_through',\n"
      "  run = function(z) return z * 4 end }",
      "pass.lua");
  for (int call = 0; call < 2; ++call) {
    const at::Tensor z = at::tensor({2.0F, 3.0F}).reshape({2, 1}).requires_grad_();
    const at::Tensor gradient = torch::autograd::grad({policy.run({z})[0].sum()}, {z})[0];
    CHECK(at::equal(gradient, at::tensor({4.0F, 1.0F}).reshape({2, 1})));
  }
}

TEST_CASE("on_violation = revert: the version before answers and is live again, if it keeps its own ranges") {
  const std::string good = source("finite = true", "return torch.nan_to_num(x), f", "on_violation = 'revert',");
  const std::string bad = source("finite = true", "return x * 1, f", "on_violation = 'revert',");
  const at::Tensor fine = at::ones({3, 2});
  at::Tensor x = fine.clone();
  x[1][0] = NAN;
  for (const size_t trial_calls : {size_t{0}, size_t{100}}) {
    CAPTURE(trial_calls);
    std::ostringstream log;
    Runtime runtime({.log = log_to(log), .trial_calls = trial_calls});
    const Policy policy = runtime.load_source(good, "revert.lua");
    policy.run({x});
    REQUIRE(policy.replace(bad) == Reload::swapped);
    policy.run({fine});
    RunInfo info;
    CHECK(at::equal(policy.run({x}, {.info = &info})[0], at::nan_to_num(x)));
    CHECK(info.answered == Answered::previous);
    CHECK(info.failure.find("1 of 3 samples of 'z' (declared finite)") != std::string::npos);
    CHECK(policy.version().number == 1);
    CHECK(violations_of(policy) == 1);
    CHECK(log.str().find("leaves declared ranges (call 1 that does): 1 of 3 samples of 'z' (declared finite)") !=
          std::string::npos);
    if (trial_calls > 0) continue;  // the version before one on trial is the last that has passed its own
    // Where the version before is no better, the inputs are at fault.
    REQUIRE(policy.replace(bad + " ") == Reload::swapped);
    REQUIRE(policy.replace(bad + "  ") == Reload::swapped);
    const int live = policy.version().number;
    for (int call = 0; call < 3; ++call) CHECK(entries(policy.run({x})[1], 1) == "CRITICAL NAN @ output.z");
    CHECK(policy.version().number == live);
  }
}

TEST_CASE("on_violation = revert: a canary that leaves its range has failed, and the live version answers") {
  Runtime runtime({.log = no_log()});
  const Policy policy = runtime.load_source(source("finite = true", "return torch.nan_to_num(x), f"), "canary.lua");
  at::Tensor x = at::ones({3, 2});
  x[1][0] = NAN;
  policy.run({x});
  CanaryOptions options;
  options.share = 1;
  options.revert_if.failures = 1;
  policy.canary_source(source("finite = true", "return x * 1, f", "on_violation = 'revert',"), options);
  CHECK(at::equal(policy.run({x})[0], at::nan_to_num(x)));
  CHECK(policy.candidate()->state == CandidateState::reverted);
}

TEST_CASE("declared ranges of policies with state: the new state is kept") {
  Runtime runtime({.log = no_log()});
  const Policy policy = runtime.load_source(
      "return policy { inputs = {'x'}, outputs = { {name = 'z', max = 2}, 'f' }, state = {n = {shape = {}}},\n"
      "  run = function(x, s) local n = s.n + 1 return x + n, err.new(x), {n = n} end }",
      "state.lua");
  for (int call = 1; call <= 4; ++call) {
    const auto [z, f] = policy.run<2>({at::zeros({2, 1})});
    CHECK(z[0][0].item<float>() == static_cast<float>(call));
    CHECK(err::is_err(f)[0].item<bool>() == (call > 2));
  }
  CHECK(policy.state().front().tensors.size() == 1);
  CHECK(violations_of(policy) == 4);
}

TEST_CASE("violations stand in metrics by version, in the decision log with an event, and in the signature") {
  std::vector<nlohmann::json> lines;
  DecisionLogOptions log;
  log.on_line = [&](std::string_view line) { lines.push_back(nlohmann::json::parse(line)); };
  RuntimeOptions options;
  options.log = no_log();
  options.decisions = std::make_shared<DecisionLog>(log);
  Runtime runtime(options);
  const Policy policy = runtime.load_source(
      "return policy { inputs = {'x'}, outputs = { {name = 'z', finite = true} }, run = function(x) return x * 2 end }",
      "told.lua");
  at::Tensor x = at::ones({3, 2});
  policy.run({x});
  x[2][1] = NAN;
  policy.run({x});
  options.decisions->flush();
  CHECK(metrics_text(runtime).find("triage_violations_total{policy=\"told\",path=\"told.lua\",version=\"1\",hash=\"" +
                                   policy.version().hash + "\",output=\"z\"} 1\n") != std::string::npos);
  REQUIRE(lines.size() == 3);  // version 1 went live, the event, the call
  CHECK(lines[1]["event"] == "violated");
  CHECK(lines[1]["version"] == 1);
  CHECK(lines[1]["reason"] == "1 of 3 samples of 'z' (declared finite)");
  CHECK(lines[2]["violations"] == nlohmann::json{{"z", 1}});
  CHECK(policy.signature().output_ranges.at(0)->text() == "finite");
}

TEST_CASE("a sample that leaves its range counts as repaired nowhere, though an output differs from its input") {
  std::vector<nlohmann::json> lines;
  DecisionLogOptions log;
  log.events = false;
  log.on_line = [&](std::string_view line) { lines.push_back(nlohmann::json::parse(line)); };
  for (const bool with_log : {false, true}) {
    RuntimeOptions options;
    options.log = no_log();
    if (with_log) options.decisions = std::make_shared<DecisionLog>(log);
    Runtime runtime(options);
    const Policy policy = runtime.load_source(
        "return policy { inputs = {'x'}, outputs = { {name = 'x', finite = true}, 'f' },\n"
        "  run = function(x) local f = flag_nan(x, 'x') x, f = fix(x, f, 'x') return x / x:norm(2, -1, true), f end }",
        "unit.lua");
    const at::Tensor x = at::tensor({3.0F, 0.0F, 4.0F, 0.0F, NAN, 1.0F, 0.0F, 1.0F}).view({4, 2});
    RunInfo info;
    policy.run({x}, {.info = &info});
    CHECK(info.flagged == 1);
    CHECK(info.violations == 1);
    CHECK(info.repaired == 0);
    CHECK(policy.statistics().total.repaired == 0);
    if (with_log) options.decisions->flush();
  }
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["repaired"] == 0);
  CHECK(lines[0]["samples"][0]["done"] == "out_of_range");
}

TEST_CASE("declared ranges: `triage test` fails a policy whose own tests leave them") {
  Runtime runtime({.log = no_log()});
  const std::string text = source("min = 0, max = 1", "return x, f",
                                  "tests = {{name = 'two', args = function() return torch.tensor({{2.0}}) end, check = "
                                  "function() return true end}},");
  const Policy policy = runtime.load_source(source("min = 0", "return x, f"), "tests.lua");
  CHECK(policy.replace(text) == Reload::refused);
  CHECK(policy.version().last_error->message.find("its declared ranges do not hold: 1 of 1 samples of 'z' (declared 0 "
                                                  "to 1)") != std::string::npos);
}

TEST_CASE("declared ranges: an exported program computes the outputs, and no masks") {
  ScriptOptions options;
  options.path = "p.lua";
  const auto script = find_front_end(options.path)(source("finite = true", "return x + 1, f"), options);
  const ExportedProgram program = export_script(*script, {at::ones({2, 2})}, {});
  CHECK(program.run({at::ones({2, 2})}).size() == 2);
}

TEST_CASE("what is wrong in a declaration of an output is named") {
  const std::array<std::pair<const char*, const char*>, 12> cases{{
      {"outputs = {{name = 'z', finit = true}}", "there is no field 'finit'; did you mean 'finite'"},
      {"outputs = {{'z', finite = true}}", "field 'outputs': entry 1: expected named fields"},
      {"outputs = {{finite = true}}", "field 'outputs': entry 1 is not a name"},
      {"outputs = {{name = 'z', finite = 1}}", "field 'finite': expected true or false, got"},
      {"outputs = {{name = 'z', min = '0'}}", "field 'min': expected a number, got"},
      {"outputs = {{name = 'z', max = 0/0}}", "field 'max': expected a number, got"},
      {"outputs = {{name = 'z', min = 2, max = 1}}", "field 'min': 2 is above the field 'max', 1"},
      {"outputs = {{name = 'z', finite = true}}, on_violation = 'revrt'", "did you mean 'revert'"},
      {"outputs = {'z'}, on_violation = 'flag'", "field 'on_violation': no output has a range"},
      {"outputs = {{name = 'z', finite = true}}, on_violation = 'pass_through'", "there is no input 'z'"},
      {"outputs = {'z'}, accumulation = {priority = 'worst'}",
       "field 'accumulation': AccumulationConfig: priority: expected Priority.CHRONO, Priority.SEVERITY or "
       "Priority.LOCATION"},
      {"outputs = {'z'}, accumulation = {ordr = 1}", "did you mean 'order'"},
  }};
  Runtime runtime({.log = no_log()});
  for (const auto& [declared, message] : cases) {
    const std::string fields = declared;
    CAPTURE(fields);
    CHECK_THROWS_WITH_AS(
        runtime.load_source(fmt::format("return policy {{ {}, run = function(x) return x end }}", fields), "bad.lua"),
        doctest::Contains(message), LoadError);
  }
}

TEST_CASE("accumulation of a policy holds for its flags, and a configuration given to an operation for that one") {
  const std::string body =
      "run = function(x)\n"
      "  local f = err.new(x)\n"
      "  for i = 1, 16 do f = push(f, err.VALUE_CLAMPED, 'note.' .. i) end\n"
      "  f = flag_nan(x, 'late', f)\n"
      "  return f\n"
      "end }";
  at::Tensor x = at::ones({3, 2});
  x[1][0] = NAN;
  for (const std::string backend : {"eager", "aot_eager", "fused"})
    for (const std::string given : {"{priority = Priority.SEVERITY, order = Order.LAST}",
                                    "{priority = 'severity', order = 'last', dedupe = 'unique'}",
                                    "AccumulationConfig{priority = Priority.SEVERITY, order = Order.LAST}"}) {
      CAPTURE(backend);
      CAPTURE(given);
      Runtime runtime({.log = no_log(), .backend = backend});
      const Policy plain = runtime.load_source("return policy { outputs = {'f'}, " + body, "plain.lua");
      const Policy policy =
          runtime.load_source("return policy { outputs = {'f'}, accumulation = " + given + ", " + body, "worst.lua");
      for (int call = 0; call < 2; ++call) {
        CHECK_FALSE(err::has_critical(plain.run({x})[0]).any().item<bool>());
        CHECK(at::equal(err::has_critical(policy.run({x})[0]), at::tensor({0, 1, 0}).to(at::kBool)));
      }
      CHECK(policy.statistics().total.full == 6);
      CHECK(metrics_text(runtime).find("triage_full_records_total{policy=\"worst\",path=\"worst.lua\"} 6\n") !=
            std::string::npos);
    }
  Runtime runtime({.log = no_log()});
  const Policy own = runtime.load_source(
      "return policy { outputs = {'f'}, accumulation = {priority = 'severity', order = 'last'},\n"
      "  run = function(x)\n"
      "    assert(CONFIG.accumulation.order == Order.LAST and get_config().accumulation.order == Order.LAST)\n"
      "    local config = ErrorConfig{num_slots = 1}\n"
      "    local f = err.new(x, {config = config})\n"
      "    f = push(f, err.VALUE_CLAMPED, 'note', {config = config})\n"
      "    return push(f, err.NAN, 'late', {config = config})\n"
      "  end }",
      "own.lua");
  CHECK(entries(own.run({x})[0], 0) == "WARN VALUE_CLAMPED @ note");
}

}  // namespace triage::test
