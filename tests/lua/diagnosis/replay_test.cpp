// Functions with graph breaks, from the second call on: their operators run in compiled segments, one run each.
#include "runtime/capture/replay/lazy_tensor.h"
#include "tests/lua/lua_fixture.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/backend.h>
#include <triage/triage.h>

#include <atomic>
#include <limits>
#include <string>

using triage::lua::testing::Fixture;
using triage::lua::testing::same_bits;

namespace {

std::atomic<int> replay_runs{0}, replay_compiled{0};

/// The interpreter, counted.
class Counted final : public triage::Executable {
 public:
  explicit Counted(std::unique_ptr<triage::Executable> executable) : executable_(std::move(executable)) {}
  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
           const triage::CallContext& call) const override {
    ++replay_runs;
    executable_->run(inputs, outputs, call);
  }

 private:
  std::unique_ptr<triage::Executable> executable_;
};

void register_counted() {
  triage::register_backend("counted", [](const triage::graph::Graph& graph, const std::vector<at::Tensor>& examples) {
    ++replay_compiled;
    return std::make_unique<Counted>(triage::find_backend("eager")(graph, examples));
  });
  triage::register_backend("refusing", [](const auto&, const auto&) -> std::unique_ptr<triage::Executable> {
    throw triage::Error("this backend compiles nothing");
  });
}

}  // namespace

TEST_CASE("N01: between breaks, the operators of a call that came before run as compiled graphs, one run each") {
  register_counted();
  Fixture lua;
  lua.run(R"lua(
    f = triage.compile(function(x)
      local y = (x * 2 + 1):relu()
      triage.graph_break("first")
      y = (y - x):abs() * 3
      triage.graph_break("second")
      return y + x, y * y
    end, {backend = "counted"}))lua");
  const auto call = [&](const at::Tensor& x) { return lua.run("return f(...)", {x}); };
  replay_runs = replay_compiled = 0;
  call(at::randn({4, 3}));
  CHECK(replay_compiled == 3);
  CHECK(replay_runs == 0);  // the first call is the script's own
  for (int i = 1; i <= 3; ++i) {
    const at::Tensor x = at::randn({4, 3}), y = ((x * 2 + 1).relu() - x).abs() * 3;
    const auto results = call(x);
    CHECK(same_bits(results.at(0), y + x));
    CHECK(same_bits(results.at(1), y * y));
    CHECK(replay_runs == 3 * i);
  }
  // Sizes that are new need no other graph.
  replay_runs = 0;
  call(at::randn({7, 3}));
  CHECK(replay_runs == 3);
  CHECK(replay_compiled == 3);
  // Nor does another rank run what was compiled for this one.
  call(at::randn({3}));
  CHECK(replay_runs == 3);
}

namespace {

/// Calls `f` with batches of sizes that never came before: results are those of `plain`, `segments` run at every call.
void every_batch_is_new(const std::string& body, int segments) {
  Fixture lua;
  lua.run("plain = function(x) " + body + " end f = triage.compile(plain, {backend = 'counted'})");
  const auto batch = [](int64_t n) {
    at::Tensor x = at::randn({n, 6});
    if (n > 1) x[1][0] = std::numeric_limits<float>::quiet_NaN();
    return x;
  };
  lua.run("f(...) f(...)", {batch(2)});
  for (const int64_t n : {3, 4, 5, 31, 32, 33, 200, 7}) {
    const at::Tensor x = batch(n);
    replay_runs = replay_compiled = 0;
    const auto expected = lua.run("return plain(...)", {x}), got = lua.run("return f(...)", {x});
    CHECK_MESSAGE(replay_runs == segments, body << " with " << n);
    CHECK_MESSAGE(replay_compiled == 0, body << " with " << n);
    REQUIRE(expected.size() == got.size());
    for (size_t i = 0; i < got.size(); ++i) CHECK_MESSAGE(same_bits(expected[i], got[i]), body << " with " << n);
  }
  for (const int64_t n : {0, 1}) {
    const at::Tensor x = batch(n);
    const auto expected = lua.run("return plain(...)", {x}), got = lua.run("return f(...)", {x});
    for (size_t i = 0; i < got.size(); ++i) CHECK_MESSAGE(same_bits(expected[i], got[i]), body << " with " << n);
  }
}

}  // namespace

TEST_CASE("N01: what was compiled between breaks runs for batches of sizes that never came before") {
  register_counted();
  every_batch_is_new("local y = x * 2 + 1 triage.graph_break() return y:relu() * 2", 2);
  every_batch_is_new(R"(
    local f = flag_nan_and_inf(x, "x")
    if has_err(f) then x = fix(x, f, "x") end
    return x:tanh() * 2, f)",
                     2);
  every_batch_is_new(R"(
    local y = torch.linear(x, torch.ones({4, 6})):softmax(-1)
    triage.graph_break()
    local m = y:mean(-1, true)
    return torch.where((y - m):abs():gt(0.1), m, y):sum(1), y:sort(-1), torch.cat({y, m}, 1))",
                     2);
  every_batch_is_new(R"(
    local _<close> = torch.no_grad()
    local y = x * 2
    triage.graph_break()
    return (y:view({-1, 3}) + 1):t() * 2, y[{":", {1, 3}}] + 1)",
                     2);
}

TEST_CASE("N01: sizes that are new come for ever, and what is known of them does not grow") {
  register_counted();
  Fixture lua;
  lua.run(
      "f = triage.compile(function(x, y) x = x * 2 + y triage.graph_break() return x - y end, {backend = 'counted'})");
  const auto call = [&](int64_t n) { return lua.run1("return f(...)", {at::ones({n, 2}), at::ones({n, 1})}); };
  call(2), call(2);
  replay_runs = replay_compiled = 0;
  for (int64_t n = 3; n < 603; ++n) REQUIRE(same_bits(call(n), at::full({n, 2}, 2.0f)));
  CHECK(replay_runs == 1200);
  CHECK(replay_compiled == 0);
}

TEST_CASE("N01: a size that the script reads is part of what was recorded") {
  register_counted();
  Fixture lua;
  lua.run(
      "f = triage.compile(function(x) x = x * #x + 1 triage.graph_break() return x * 2 end, {backend = 'counted'})");
  for (const int64_t n : {2, 3, 2, 3, 4})
    CHECK(same_bits(lua.run1("return f(...)", {at::ones({n, 2})}),
                    at::full({n, 2}, 2.0f * (1.0f + static_cast<float>(n)))));
}

TEST_CASE("N01: a path that is new extends what is known, and the old one is still followed") {
  register_counted();
  Fixture lua;
  lua.run(R"lua(
    f = triage.compile(function(x)
      local y = x * 2
      if y:sum():item() > 0 then return y + 1 end
      return y - 1
    end, {backend = "counted"}))lua");
  const at::Tensor up = at::ones({3}), down = -up;
  const auto call = [&](const at::Tensor& x) { return lua.run1("return f(...)", {x}); };
  replay_compiled = 0;
  call(up);
  call(down);
  CHECK(replay_compiled == 3);  // x * 2 with its sum, and what follows on either side
  replay_runs = 0;
  CHECK(same_bits(call(up), up * 2 + 1));
  CHECK(same_bits(call(down), down * 2 - 1));
  CHECK(replay_runs == 4);
  CHECK(replay_compiled == 3);
}

TEST_CASE("G06: an error of the backend is one of the call where error_on_graph_break says so, else ATen serves") {
  register_counted();
  Fixture lua;
  const at::Tensor x = at::randn({3});
  lua.run("f = triage.compile(function(x) return x * 2 end, {backend = 'refusing'})");
  CHECK(lua.error_of("triage.error_on_graph_break(true, f)(torch.ones({2}))").find("compiles nothing") !=
        std::string::npos);
  for (int i = 0; i < 3; ++i) CHECK(same_bits(lua.run1("return f(...)", {x}), x * 2));
  CHECK(lua.error_of(
               "triage.compile(function(x) return x end, {backend = 'refusing', fullgraph = true})(torch.ones({2}))")
            .find("compiles nothing") != std::string::npos);
  lua.run("g = triage.compile(function(x) x = x * 2 triage.graph_break() return x + 1 end, {backend = 'refusing'})");
  for (int i = 0; i < 3; ++i) CHECK(same_bits(lua.run1("return g(...)", {x}), x * 2 + 1));
}

TEST_CASE("N01: a policy with breaks is followed from C++, its params may change") {
  register_counted();
  triage::RuntimeOptions options;
  options.backend = "counted";
  triage::Runtime runtime(options);
  triage::Policy policy = runtime.load_source(R"lua(
    return policy {
      params = {limit = 3.0},
      run = function(z, p)
        local f = flag_nan_and_inf(z, "z")
        if err.any_err(f):item() then z = fix(z, f) end
        return z:clamp({max = p.limit}) * 2, f
      end,
    })lua",
                                              "test.lua");
  const at::Tensor clean = at::full({4, 2}, 5.0f);
  at::Tensor bad = clean.clone();
  bad[1][0] = std::numeric_limits<float>::quiet_NaN();
  replay_runs = 0;
  for (int i = 0; i < 4; ++i) {
    const double limit = i < 2 ? 3.0 : 4.0;
    policy.set_param("limit", limit);
    CHECK(policy.run({clean}).at(0).equal(at::full({4, 2}, 2 * static_cast<float>(limit))));
    const auto outputs = policy.run({bad});
    CHECK(outputs.at(0)[1][0].item<float>() == 0.0f);
    CHECK(policy.flags_outputs() == std::vector<bool>{false, true});
  }
  CHECK(replay_runs > 0);
  CHECK(policy.graph_breaks().size() == 1);
}

TEST_CASE("a followed policy writes to no input of the host, through a view that comes later either") {
  triage::Runtime runtime;
  triage::Policy policy = runtime.load_source(R"lua(
    return function(z)
      triage.graph_break()
      local v = z:t()
      v:add_(1)
      return z
    end)lua",
                                              "test.lua");
  const at::Tensor z = at::zeros({2, 3});
  for (int i = 0; i < 4; ++i) CHECK_THROWS_AS(policy.run({z}), triage::Error);
  CHECK(z.equal(at::zeros({2, 3})));
}

TEST_CASE("calls that are followed leave their memory to the next ones, however many there are") {
  triage::RuntimeOptions options;
  options.limits.tensor_bytes = 256 << 20;
  triage::Runtime runtime(options);
  const triage::Policy policy = runtime.load_source(
      "return function(z)\n  local y = ((z * 2 + 1):relu() - z):abs()\n  triage.graph_break()\n"
      "  return ((y * 3 - 1):relu() + z):clamp({max = 3})\nend",
      "followed.lua");
  const at::Tensor z = at::zeros({512, 1024});  // 2 MiB, of which a call makes eight
  for (int call = 0; call < 150; ++call) REQUIRE(policy.run({z}).size() == 1);
}

TEST_CASE("a loop over a function with graph breaks lets go of what its calls made") {
  Fixture lua;
  lua.context().limits.tensor_bytes = 256 << 20;
  lua.run(R"lua(
    local f = triage.compile(function(x)
      local y = x * 2 + 1
      triage.graph_break()
      return y:relu() + x
    end)
    local x = torch.ones({512, 1024})
    for _ = 1, 200 do f(x) end)lua");
}

TEST_CASE("policies that call each other through the host are each followed by themselves") {
  triage::Policy* inner = nullptr;
  triage::Runtime runtime;
  runtime.define("other", [&](const std::vector<at::Tensor>& tensors) { return inner->run({tensors.at(0) + 0}); });
  triage::Policy called = runtime.load_source(
      "return function(z) local y = z * 3 if y:sum():item() > 0 then return y + 1 end return y - 1 end", "inner.lua");
  inner = &called;
  triage::Policy policy =
      runtime.load_source("return function(z) local y = z * 2 local w = other(y + 1) return w + y end", "outer.lua");
  for (int i = 0; i < 5; ++i) {
    const at::Tensor z = at::full({2, 2}, i % 2 ? 1.0f : -2.0f), y = z * 2, x = (y + 1) * 3;
    const at::Tensor expected = (x.sum().item<float>() > 0 ? x + 1 : x - 1) + y;
    CHECK(same_bits(policy.run({z}).at(0), expected));
  }
}

TEST_CASE("what a followed call put off and nobody read is gone when the call is") {
  Fixture lua;
  lua.run("f = triage.compile(function(x) local y = (x * 2 + 1):relu() triage.graph_break() return y + 1 end)");
  const at::Tensor x = at::randn({4, 3});
  for (int i = 0; i < 3; ++i) lua.run("return f(...)", {x});
  lua_gc(lua.lua(), LUA_GCCOLLECT);
  const auto users = x.use_count();
  const size_t unfilled = triage::capture::LazyTensor::count();
  for (int i = 0; i < 100; ++i) lua.run("return f(...)", {x});
  lua_gc(lua.lua(), LUA_GCCOLLECT);
  CHECK(x.use_count() == users);
  CHECK(triage::capture::LazyTensor::count() == unfilled);
  CHECK(unfilled == 0);
}

TEST_CASE("G06: fail_on_backend_error holds for the graphs between breaks") {
  register_counted();
  Fixture lua;
  const std::string said = lua.error_of(
      "triage.compile(function(x) x = x * 2 triage.graph_break() return x + 1 end, "
      "{backend = 'refusing', fail_on_backend_error = true})(torch.ones({2}))");
  CHECK(said.find("compiles nothing") != std::string::npos);
}
