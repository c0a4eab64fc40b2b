// The gates of a reload with scripts: what is timed leaves no trace, and the place of a graph break is told.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <sstream>
#include <string>
#include "tests/logs.h"

namespace {

using triage::Policy;
using triage::Reload;
using triage::ReloadGate;
using triage::Runtime;

const at::Tensor gated_rows = at::ones({4, 3});

std::string gate_reason(const Policy& policy) {
  const auto error = policy.version().last_error;
  return error ? error->message : "";
}

bool has_part(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// With so many operators more than the live version has: in its graph, or behind a graph break.
std::string gated_source(int operators, bool breaks = false) {
  return "return policy {inputs = {'z'}, outputs = {'y'}, run = function(z)\n" +
         std::string(breaks ? "if z:sum():item() > 1e9 then return z end\n" : "") +
         "local a = torch.ones({200, 200}) * (z:sum() * 0 + 1)\nfor i = 1, " + std::to_string(operators) +
         " do a = torch.mm(a, a) / 200 end\nreturn z + a:sum() * 0 + 1\nend}";
}

}  // namespace

TEST_CASE("reload: a version of a hundred times the time is refused, as a graph and as a script") {
  for (const bool breaks : {false, true}) {
    CAPTURE(breaks);
    Runtime runtime({.log = triage::test::no_log()});
    const Policy policy = runtime.load_source(
        "return policy {inputs = {'z'}, outputs = {'y'}, run = function(z) return z + 1 end}", "p.lua");
    policy.run({gated_rows});
    CHECK(policy.replace(gated_source(20, breaks)) == Reload::refused);
    CHECK_MESSAGE(has_part(gate_reason(policy),
                           "the new source is slower than version 1: a call with inputs of sizes [4, 3] takes "),
                  gate_reason(policy));
    CHECK(policy.version().last_error->source.line == 1);
    CHECK(policy.run({gated_rows})[0].equal(gated_rows + 1));
  }
}

TEST_CASE("reload: the random numbers and the state of calls are those of a reload that times nothing") {
  const auto numbers = [](double ratio) {
    Runtime runtime({.log = triage::test::no_log(), .reload_latency_ratio = ratio, .on_slow_reload = ReloadGate::warn});
    const auto text = [](const char* more) {
      return std::string(
                 "return policy {inputs = {'z'}, outputs = {'y'}, state = {n = {shape = {1}}}, run = function(z, "
                 "s)\n") +
             more + "local n = s.n + torch.rand({1}) return z + n, {n = n} end}";
    };
    const Policy policy = runtime.load_source(text(""), "p.lua");
    at::Tensor all = policy.run({gated_rows})[0];
    CHECK(policy.replace(
              text("for i = 1, 3 do local unused = torch.mm(torch.rand({200, 200}), torch.rand({200, 200})) end\n")) ==
          Reload::swapped);
    for (int i = 0; i < 3; ++i) all = at::cat({all, policy.run({gated_rows})[0]});
    return all;
  };
  CHECK(numbers(0).equal(numbers(10)));
}

TEST_CASE("reload: the line of a new graph break, its hint and the way out are told") {
  std::ostringstream text;
  Runtime runtime({.log = triage::test::log_to(text), .on_new_graph_breaks = ReloadGate::refuse});
  const Policy policy = runtime.load_source("return function(z) return z + 1 end", "p.lua");
  policy.run({gated_rows});
  CHECK(policy.replace(
            "return function(z)\n  local y = z + 2\n  if y:sum():item() > 1e9 then return z end\n  return y\nend") ==
        Reload::refused);
  const std::string reason = gate_reason(policy);
  for (const char* const part : {"version 1 does not", "p.lua:3: graph break: ", "Hint: ", "on_new_graph_breaks"})
    CHECK_MESSAGE(has_part(reason, part), reason);
  CHECK(policy.version().last_error->source.line == 3);
  CHECK(policy.run({gated_rows})[0].equal(gated_rows + 1));
}
