// Where in a sample an error stands first: at the locations that a policy lists in `positions`.
#include "tests/logs.h"
#include "tests/lua/policies/policies.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <triage/triage.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace triage::test {
namespace {

using Position = std::vector<int64_t>;

constexpr const char* searching = R"(return policy {
  inputs = {"x"}, outputs = {"y", "f"}, positions = {"x", "log"},
  run = function(x)
    local f = flag_nan_and_inf(x, "x")
    local y = x + 1
    f = flag_nan(y:log(), "log", f)
    return y, f
  end,
})";

Policy policy_on(Runtime& runtime, const std::string& source) { return runtime.load_source(source, "positions.lua"); }

Position found(const RunInfo& info, const std::string& location, int64_t sample, Code code) {
  return find_position(info.positions, location, sample, code);
}

/// By looking at one value after the other.
Position first_of(const at::Tensor& sample, bool (*is_bad)(double)) {
  const at::Tensor flat = sample.reshape({-1}).to(at::kDouble);
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if (!is_bad(flat[i].item<double>())) continue;
    Position position;
    int64_t rest = i;
    for (int64_t dim = sample.dim() - 1; dim >= 0; --dim) {
      position.insert(position.begin(), rest % sample.size(dim));
      rest /= sample.size(dim);
    }
    return position;
  }
  return {};
}

bool is_nan(double value) { return std::isnan(value); }
bool is_inf(double value) { return std::isinf(value); }

}  // namespace

TEST_CASE("positions: of the first NaN and the first Inf of a sample, on every backend") {
  for (const std::string backend : backends)
    for (const int64_t rows : {0, 1, 2, 31, 32, 33}) {
      CAPTURE(backend);
      CAPTURE(rows);
      Runtime runtime({.log = no_log(), .backend = backend, .fullgraph = true});
      const Policy policy = policy_on(runtime, searching);
      const at::Tensor x = at::zeros({rows, 14}).as_strided({rows, 7}, {14, 2});
      if (rows > 0) x[rows - 1][3] = x[rows - 1][5] = NAN;
      if (rows > 1) x[0][6] = INFINITY;
      if (rows > 2) x[1][2] = -4.0;  // the logarithm of -3
      for (int call = 0; call < 3; ++call) {
        RunInfo info;
        const auto [y, f] = policy.run<2>({x}, {.info = &info});
        CHECK(policy.signature().outputs.size() == 2);
        REQUIRE(info.positions.size() == 2);
        CHECK(info.positions[0].location == "x");
        CHECK(info.positions[0].at.sizes() == std::vector<int64_t>{rows, 3, 1});
        if (rows > 0) CHECK(found(info, "x", rows - 1, err::nan) == Position{3});
        if (rows > 0) CHECK(found(info, "log", rows - 1, err::nan) == Position{3});
        if (rows > 1) CHECK(found(info, "x", 0, err::inf) == Position{6});
        if (rows > 1) CHECK(found(info, "x", 0, err::nan).empty());
        if (rows > 2) CHECK(found(info, "log", 1, err::nan) == Position{2});
        if (rows > 0)
          CHECK(flags::pretty_print(f, rows - 1, {.positions = info.positions}).find("NAN | @ x at [3]") !=
                std::string::npos);
      }
    }
}

TEST_CASE("positions: any number of dimensions, as one value after the other finds them") {
  std::mt19937 random(3);
  const auto below = [&](int64_t count) { return static_cast<int64_t>(random() % static_cast<uint64_t>(count)); };
  const double bad[] = {NAN, INFINITY, -INFINITY};
  for (int i = 0; i < 40; ++i) {
    std::vector<int64_t> sizes = {1 + below(5)};
    for (int64_t dims = 1 + below(3); dims > 0; --dims) sizes.push_back(1 + below(4));
    at::Tensor x = at::zeros(sizes);
    at::Tensor flat = x.view({-1});
    for (int k = 0; k < 4; ++k) flat[below(flat.numel())] = bad[below(3)];
    Runtime runtime({.log = no_log(), .backend = i % 2 == 0 ? "eager" : "fused"});
    const Policy policy =
        policy_on(runtime,
                  "return policy { inputs = {'x'}, outputs = {'f'}, positions = {'x'}, run = function(x) return "
                  "flag_nan_and_inf(x, 'x') end }");
    RunInfo info;
    for (int call = 0; call < 2; ++call) policy.run({x}, {.info = &info});
    CAPTURE(x);
    for (int64_t sample = 0; sample < sizes[0]; ++sample) {
      CHECK(found(info, "x", sample, err::nan) == first_of(x[sample], is_nan));
      CHECK(found(info, "x", sample, err::inf) == first_of(x[sample], is_inf));
    }
  }
}

TEST_CASE("positions: indices out of bounds, branches, several searches, and none") {
  Runtime runtime({.log = no_log()});
  RunInfo info;
  const Policy ids = policy_on(runtime, R"(return policy {
    inputs = {"ids"}, outputs = {"f"}, positions = {"ids"},
    run = function(ids) return flag_oob_indices(ids, 10, "ids") end })");
  for (int call = 0; call < 2; ++call)
    ids.run({at::tensor({1, 2, 3, 4, 12, -1}, at::kLong).view({2, 3})}, {.info = &info});
  CHECK(found(info, "ids", 0, err::out_of_bounds).empty());
  CHECK(found(info, "ids", 1, err::out_of_bounds) == Position{1});

  const Policy several = policy_on(runtime, R"(return policy {
    inputs = {"a", "b"}, outputs = {"f"}, positions = {"both", "nowhere"},
    run = function(a, b)
      local f = flag_nan(a, "both")
      return IF(a:sum(1) > 0, function() return flag_nan(b, "both", f) end):ELSE(function() return f end)
    end })");
  const at::Tensor a = at::ones({3, 4}), b = at::ones({3, 4});
  a[0][1] = b[0][0] = b[2][3] = NAN;
  for (int call = 0; call < 2; ++call) several.run({a, b}, {.info = &info});
  CHECK(found(info, "both", 0, err::nan) == Position{1});  // of the search that found it first
  CHECK(found(info, "both", 2, err::nan) == Position{3});
  CHECK(found(info, "nowhere", 0, err::nan).empty());
  CHECK(info.positions[1].at.sizes() == std::vector<int64_t>{0, 3, 0});

  const Policy none = policy_on(runtime, "return function(x) return flag_nan(x, 'x') end");
  none.run({a}, {.info = &info});
  CHECK(info.positions.empty());
}

TEST_CASE("positions: with state, declared ranges and a graph break") {
  Runtime runtime({.log = no_log()});
  const Policy policy = policy_on(runtime, R"(return policy {
    inputs = {"x"}, outputs = {{name = "y", finite = true}, "f"}, positions = {"x"},
    state = {calls = {shape = {}, init = 0.0}},
    run = function(x, s)
      local f = flag_nan(x, "x")
      if x:sum():item() == 12345 then print("never") end
      return x * 2, f, {calls = s.calls + 1}
    end })");
  const at::Tensor x = at::ones({3, 2});
  x[1][1] = NAN;
  for (int call = 0; call < 3; ++call) {
    RunInfo info;
    const auto outputs = policy.run({x}, {.info = &info});
    REQUIRE(outputs.size() == 2);
    CHECK(info.violations == 1);
    CHECK(found(info, "x", 1, err::nan) == Position{1});
  }
}

TEST_CASE("positions: in the decision log, where the host does not drop them") {
  std::vector<nlohmann::json> lines;
  for (const bool drops : {false, true}) {
    DecisionLogOptions log;
    log.events = false;
    log.on_line = [&](std::string_view line) { lines.push_back(nlohmann::json::parse(line)); };
    if (drops) log.drop = {"position"};
    RuntimeOptions options;
    options.log = no_log();
    options.decisions = std::make_shared<DecisionLog>(log);
    Runtime runtime(options);
    const Policy policy = policy_on(runtime, searching);
    at::Tensor x = at::zeros({3, 4});
    x[2][1] = NAN;
    policy.run({x});
    options.decisions->flush();
  }
  REQUIRE(lines.size() == 2);
  const auto& errors = lines[0].at("samples").at(0).at("errors");
  CHECK(errors.at(0).at("position") == std::vector<int>{1});
  CHECK(errors.at(1).at("position") == std::vector<int>{1});
  CHECK_FALSE(lines[1].at("samples").at(0).at("errors").at(0).contains("position"));
}

TEST_CASE("positions: what the field may hold") {
  Runtime runtime({.log = no_log()});
  const auto error = [&](const std::string& positions) {
    try {
      policy_on(runtime, "return policy { positions = " + positions + ", run = function(x) return x end }");
    } catch (const LoadError& caught) {
      return std::string(caught.what());
    }
    return std::string();
  };
  CHECK(says(error("true"), "field 'positions'"));
  CHECK(says(error("{3}"),
             "policy: field 'positions': entry 1: expected the path of a location, such as \"encoder.2\", "
             "got int 3"));
  CHECK(says(error("{''}"), "entry 1: expected the path of a location"));
  CHECK(says(error("{'a', 'a'}"), "policy: field 'positions' lists 'a' twice"));
  CHECK(says(error("{encoder = true}"), "expected a list of locations, as in positions = { \"encoder.2\" }"));
  CHECK(error("{'encoder.2'}").empty());
}

}  // namespace triage::test
