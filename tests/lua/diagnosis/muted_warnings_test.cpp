// triage.compile(fn, {warn = false}): the breaks of the function are meant; all else is told as ever.
#include "tests/lua/lua_fixture.h"
#include "tests/lua/policies/policies.h"

#include <doctest/doctest.h>
#include <triage/backend.h>

#include <stdexcept>
#include <string>

using triage::lua::testing::Fixture;
using triage::lua::testing::trusted_options;
using triage::test::says;

namespace {

/// What is said while the source runs.
std::string said(const std::string& source) {
  std::string text;
  triage::lua::StateOptions options = trusted_options();
  options.print = [&](const std::string& line) { text += line + "\n"; };
  Fixture(std::move(options)).run(source);
  return text;
}

const std::string breaks =
    "f = triage.compile(function(x) triage.graph_break('meant') return x + x:sum():item() end, {warn = $}) "
    "f(torch.ones({2})) ";
const std::string odd_argument =
    "f = triage.compile(function(x, t) return x + t[1] end, {warn = $}) "
    "f(torch.ones({2}), {1})";

std::string with_warn(std::string source, const char* warn) { return source.replace(source.find('$'), 1, warn); }

}  // namespace

TEST_CASE("warn = false leaves out the reports of graph breaks") {
  for (const auto& source : {breaks, odd_argument}) {
    CHECK(says(said(with_warn(source, "true")), "graph break"));
    CHECK(said(with_warn(source, "false")).empty());
  }
}

TEST_CASE("warn = false leaves warnings of limits and of backends in place") {
  const std::string limits =
      "f = triage.compile(function(x) for i = 1, x:size(0) do x = x + i end return x end, {warn = false}) "
      "for n = 1, 20 do f(torch.ones({n})) end";
  CHECK(says(said(limits), "other calls now run the script"));

  static const bool registered = [] {
    triage::register_backend(
        "refuses_all",
        [](const triage::graph::Graph&, const std::vector<at::Tensor>&) -> std::unique_ptr<triage::Executable> {
          throw std::runtime_error("not today");
        });
    return true;
  }();
  CHECK(registered);
  CHECK(says(said("f = triage.compile(function(x) return x * 2 end, {warn = false, backend = 'refuses_all'}) "
                  "f(torch.ones({2}))"),
             "not today"));
  CHECK(says(said("f = triage.compile(function(x) local y = x * 2 triage.graph_break('meant') return y + 1 end, "
                  "{warn = false, backend = 'refuses_all'}) for i = 1, 3 do f(torch.ones({2})) end"),
             "not today"));
}
