// Flags operations and IF while they are captured: the graph gives the bits that eager Lua gives, on any batch.
#include "bindings/lua/capture/open_chains.h"
#include "runtime/capture/recording/recorder.h"
#include "tests/lua/lua_fixture.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/backend.h>

#include <limits>

namespace triage::lua::testing {
namespace {

at::Tensor batch_of_four_columns(int64_t rows) {
  at::Tensor z = at::arange(rows * 4, at::kFloat).reshape({rows, 4}).sub(3.0);
  for (int64_t i = 0; i < rows; ++i) {
    if (i % 3 == 1) z[i][1] = std::numeric_limits<float>::quiet_NaN();
    if (i % 4 == 2) z[i][2] = std::numeric_limits<float>::infinity();
  }
  return z;
}

/// Captures `source` (a chunk that gets z) and returns its graph.
graph::Graph capture_graph(Fixture& fixture, const std::string& source, const at::Tensor& z) {
  capture::Recorder recorder("test", true, [L = fixture.lua()] { return current_line(L); });
  const at::Tensor input = recorder.add_input("z", graph::InputKind::tensor, z);
  const auto outputs = fixture.run(source, {input});
  check_finished_chains(fixture.lua());
  return recorder.finish(outputs).graph;
}

void check_captured(const std::string& source) {
  INFO(source);
  Fixture fixture;
  graph::Graph graph = capture_graph(fixture, source, batch_of_four_columns(5));
  graph::clean(graph);
  const auto executable = find_backend("eager")(graph, {batch_of_four_columns(5)});
  for (int64_t rows : {5, 2, 3, 31, 32, 33}) {
    const at::Tensor z = batch_of_four_columns(rows);
    const auto expected = fixture.run(source, {z});
    std::vector<at::Tensor> got;
    executable->run({z}, got);
    REQUIRE(got.size() == expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      CHECK_MESSAGE(same_bits(got[i], expected[i]), "result " << i + 1 << " at " << rows << " rows");
  }
}

std::string capture_error(const std::string& source) {
  Fixture fixture;
  try {
    capture_graph(fixture, source, batch_of_four_columns(5));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("T15: captured IF holds every branch and selects as eager code does") {
  check_captured(R"lua(local z = ...
    local f = flag_nan_and_inf(z, "captured")
    return IF(err.has_nan(f), function() return torch.zeros_like(z), f end)
      :ELIF(err.has_inf(f), function() return z:nan_to_num(0.0, 1e4, -1e4):clamp(-10, 10), push(f, err.VALUE_CLAMPED, 7) end)
      :ELSE(function() return z:tanh(), f end))lua");
  check_captured(R"lua(local z = ...
    local f = flag_nan_and_inf(z, "captured")
    return IF(IS(err.OOB, f), function() return z - 1 end)
      :ELIF(AND(HAS(f), NOT(IS(err.OOB, f))), function() return z * 2 end):ELSE(function() return z end))lua");
  check_captured(R"lua(local z = ...
    local f = flag_nan_and_inf(z, "captured")
    local t = IF(err.is_err(f), function() return {a = z, {b = f}} end):ELSE(function() return {a = -z, {b = err.new(z)}} end)
    t.c = t.a * 2
    return t.a, t[1].b, t.c)lua");
}

TEST_CASE("T11, T12, T14: captured operations give the bits of eager ones") {
  check_captured(R"lua(local z = ...
    local f = flag_nan_and_inf(z, "captured")
    return fix(z, f, "captured", {fallback = function() return torch.full_like(z, 2.0) end}))lua");
  check_captured(R"lua(local z = ...
    local f = flag_nan(z, "captured")
    local y, g = err.and_then(f, z, function(x) return x:clamp_min(0), flag_inf(x, "second") end)
    y, g = err.bind(g, y, function(x) return x + 1, err.push(err.new(x), err.SATURATED, 4) end)
    return err.map_err(g, y, function(x) return err.replace(x, 0, {err.NAN, err.INF, 999}) end), err.clear(g, err.NAN))lua");
  check_captured(R"lua(local z = ...
    local f = err.guard(err.new(z), z, function(x) return (x > 0):all(-1) end, err.OOB, "captured")
    f = push(f, (z:select(1, 0) > 5):to(torch.int64) * 9, 8, {where = err.is_ok(f)})
    local y, g = err.recover_with_fallback(f, z, torch.tensor(1.5), 9)
    return err.take_ok_p(g, y, -1), err.merge(g, f), err.max_severity(g))lua");
}

TEST_CASE("T15: a chain without ELSE is an error at capture that names its line") {
  const std::string message =
      capture_error("local z = ...\nlocal f = flag_nan(z, 1)\nIF(err.is_err(f), function() return z end)\nreturn z");
  CHECK_MESSAGE(message.find(":3: IF was never finished") != std::string::npos, message);
}

TEST_CASE("T08, T13: what reads values breaks the graph") {
  for (const char* expression :
       {"err.take_ok(f, z)", "err.take_err(f, z)", "err.partition(f, z)", "err.get_ok(f)", "flags.repr(f)",
        "flags.unpack(f, 0)", "flags.summary(f)", "has_err(f)", "print('x')", "math.random()"}) {
    const std::string message =
        capture_error(std::string("local z = ... local f = flag_nan(z, 1) local r = ") + expression + " return z");
    CHECK_MESSAGE(!message.empty(), expression);
  }
}

TEST_CASE("T15: a draw of random numbers inside a branch breaks the graph") {
  CHECK(!capture_error("local z = ... return IF(err.is_err(flag_nan(z, 1)), function() return torch.rand_like(z) end)"
                       ":ELSE(function() return z end)")
             .empty());
}

}  // namespace triage::lua::testing
