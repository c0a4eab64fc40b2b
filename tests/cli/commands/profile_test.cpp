// `triage bench --profile`, and what `triage bench` says of where the time goes and whether a capture pays.
#include "tests/cli/program.h"
#include "tests/cli/variable.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

constexpr const char* sorted = R"(return policy {
  name = "sorted", inputs = { "z" }, outputs = { "z", "f" },
  run = function(z)
    local f = flag_nan(z, "x")
    local y = torch.sort(z, 1)
    return fix(y * 2 + 1, f, "x"), f
  end,
})";

struct Bench {
  TemporaryFolder folder;
  Bench() { write_bytes(folder / "sorted.lua", sorted); }
  Ran operator()(const std::vector<std::string>& more, const std::string& policy = "sorted.lua") const {
    std::vector<std::string> arguments = {"bench",     policy, "--input",   "z=randn:32x256,nan=2",
                                          "--batches", "32",   "--seconds", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return triage_program(folder, arguments);
  }
  /// The spans of a trace, by when they begin.
  std::vector<nlohmann::json> trace(const std::string& name) const {
    std::vector<nlohmann::json> spans;
    const nlohmann::json trace = parse_json(read_bytes(folder / name));
    for (const auto& event : trace["traceEvents"])
      if (event["ph"] == "X" && (event["cat"] == "cpu_op" || event["cat"] == "user_annotation")) spans.push_back(event);
    std::stable_sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
      return a["ts"].template get<double>() < b["ts"].template get<double>();
    });
    return spans;
  }
};

std::vector<nlohmann::json> named(const std::vector<nlohmann::json>& spans, const std::string& begin) {
  std::vector<nlohmann::json> found;
  for (const auto& span : spans)
    if (span["name"].get<std::string>().rfind(begin, 0) == 0) found.push_back(span);
  return found;
}

/// Both on one thread, and one within the time of the other. Times are microseconds since the machine's start or 1970,
/// of which a double has two digits behind the point.
bool lies_in(const nlohmann::json& inner, const nlohmann::json& outer) {
  constexpr double rounding = 0.02;
  const auto begin = [](const nlohmann::json& span) { return span["ts"].get<double>(); };
  const auto end = [&](const nlohmann::json& span) { return begin(span) + span["dur"].get<double>(); };
  return inner["tid"] == outer["tid"] && begin(inner) >= begin(outer) - rounding && end(inner) <= end(outer) + rounding;
}

bool lies_in_one_of(const nlohmann::json& inner, const std::vector<nlohmann::json>& outer) {
  return std::any_of(outer.begin(), outer.end(), [&](const auto& span) { return lies_in(inner, span); });
}

}  // namespace

TEST_CASE("D15: bench --profile writes a trace in which tapes lie in groups, and these in the graph of the policy") {
  const Bench bench;
  const Ran ran = bench({"--profile", "trace.json"});
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  CHECK(ran.err.empty());
  CHECK_MESSAGE(has(ran.out, "trace of 10 calls of 32 rows on fused: trace.json (by "), ran.out);
  const auto spans = bench.trace("trace.json");
  const auto policies = named(spans, "triage::policy sorted"), graphs = named(spans, "triage::graph sorted[0]"),
             groups = named(spans, "triage::fused group sorted: "), loops = named(spans, "triage::tape sorted: ");
  CHECK(policies.size() == 10);
  CHECK(graphs.size() == 10);
  REQUIRE(groups.size() >= 10);
  CHECK(loops.size() == groups.size());
  CHECK(has(groups[0]["name"], "(sorted.lua:"));
  for (const auto& graph : graphs) CHECK(lies_in_one_of(graph, policies));
  for (const auto& group : groups) CHECK(lies_in_one_of(group, graphs));
  for (const auto& loop : loops) CHECK(lies_in_one_of(loop, groups));
  const auto sorts = named(spans, "aten::sort"), nodes = named(spans, "triage::node sorted.lua:5: ");
  REQUIRE(sorts.size() >= 10);
  CHECK(nodes.size() == 10);
  for (const auto& sort : sorts) CHECK(lies_in_one_of(sort, nodes));
}

TEST_CASE(
    "D15: bench --profile --backend eager: ATen's operators lie in the policy, with the script line around them") {
  const Bench bench;
  const Ran ran = bench({"--profile", "trace.json", "--backend", "eager", "--json"});
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  const nlohmann::json profile = ran.json()["profile"];
  CHECK(profile["file"] == "trace.json");
  CHECK(profile["backend"] == "eager");
  CHECK(profile["calls"] == 10);
  CHECK(profile["rows"] == 32);
  CHECK((profile["by"] == "Kineto" || profile["by"] == "triage"));
  const auto spans = bench.trace("trace.json");
  const auto policies = named(spans, "triage::policy sorted");
  CHECK(policies.size() == 10);
  CHECK(named(spans, "triage::fused group").empty());
  for (const char* name : {"triage::flag_nan", "aten::sort", "aten::mul", "aten::add", "triage::fix"}) {
    CAPTURE(name);
    const auto operators = named(spans, name);
    CHECK(operators.size() >= 10);
    for (const auto& one : operators) CHECK(lies_in_one_of(one, policies));
  }
  for (const auto& sort : named(spans, "aten::sort"))
    CHECK(lies_in_one_of(sort, named(spans, "triage::node sorted.lua:5: ")));
}

TEST_CASE("D18: bench names the line of the script and the part of the graph that cost most") {
  const Bench bench;
  const Ran json = bench({"--json"});
  CAPTURE(json.err);
  REQUIRE(json.status == 0);
  const nlohmann::json costs = json.json()["costs"];
  CHECK(costs["rows"] == 32);
  const auto& lines = costs["script_lines"];
  CHECK(lines.size() == 3);
  CHECK(lines[0]["file"] == "sorted.lua");
  CHECK(lines[0]["line"] == 5);
  CHECK(lines[0]["text"] == "local y = torch.sort(z, 1)");
  double shares = 0;
  for (const auto& line : lines) shares += line["share"].get<double>();
  CHECK(shares == doctest::Approx(1));
  const auto& parts = costs["fused_parts"];
  CHECK(parts.size() >= 2);
  CHECK(has(parts[0]["name"], "triage::node sorted.lua:5: "));
  CHECK(parts[0]["us"].get<double>() > parts[1]["us"].get<double>());
  CHECK(parts[0]["share"].get<double>() < 1);
  CHECK(json.json()["profile"].is_null());

  const Ran text = bench({});
  CHECK_MESSAGE(has(text.out, "lines of the script, not captured, at 32 rows: share of a call, us"), text.out);
  CHECK_MESSAGE(has(text.out, "sorted.lua:5  local y = torch.sort(z, 1)\n"), text.out);
  CHECK_MESSAGE(has(text.out, "parts of the fused code at 32 rows: share of a call, us"), text.out);
}

TEST_CASE("D15: bench has times of captured lines; with --profile of each step of each tape; shares add up") {
  const Bench bench;
  const Ran json = bench({"--json"});
  REQUIRE(json.status == 0);
  const nlohmann::json captured = json.json()["costs"]["captured"];
  double shares = 0;
  std::vector<nlohmann::json> sources;
  for (const auto& line : captured["lines"]) {
    shares += line["share"].get<double>();
    sources.push_back(line["source"]);
  }
  CHECK(shares == doctest::Approx(1));
  for (const char* source : {"sorted.lua:4", "sorted.lua:5", "sorted.lua:6"})
    CHECK_MESSAGE(std::count(sources.begin(), sources.end(), source) == 1, source);
  CHECK(sources.back().is_null());
  REQUIRE(captured["graphs"].size() == 1);
  const auto& parts = captured["graphs"][0]["parts"];
  CHECK(std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part["source"] == "sorted.lua:5"; }));
  for (const auto& part : parts) {
    double steps = 0;
    for (const auto& step : part["steps"]) steps += step["us"].get<double>();
    CHECK(steps <= part["us"].get<double>());
    CHECK(part["steps"].empty() == has(part["name"], "aten::sort"));
  }
  const Ran text = bench({});
  CHECK_MESSAGE(has(text.out, "lines of the script, captured, at 32 rows: share of a call, us"), text.out);
  CHECK_MESSAGE(has(text.out, "no line: guards, checks, memory, reading and writing"), text.out);
  CHECK_FALSE(has(text.out, "tape of "));
  const Ran profiled = bench({"--profile", "trace.json"});
  CHECK_MESSAGE(has(profiled.out, " tape of "), profiled.out);
  CHECK_MESSAGE(has(profiled.out, "sorted.lua:6"), profiled.out);
  CHECK_FALSE(has(bench({"--profile", "trace.json", "--backend", "eager"}).out, " tape of "));
}

TEST_CASE("D18: bench says whether capturing pays, and after how many calls") {
  const Bench bench;
  write_bytes(
      bench.folder / "reads.lua",
      "return function(z)\n  local s = 0\n  for i = 0, 3 do s = s + z[i]:sum():item() end\n  return z * s\nend");
  for (const char* policy : {"sorted.lua", "reads.lua"}) {
    CAPTURE(policy);
    const auto json = bench({"--json"}, policy).json();
    const auto& batch = json["batches"][0];
    const bool pays = batch["fused_us"].get<double>() < batch["script_us"].get<double>();
    CHECK(batch["pays"] == pays);
    const auto& after = json["pays_after"];
    CHECK(after["rows"] == 32);
    CHECK(after["calls"].is_null() != pays);
    CHECK(has(after["text"], pays ? "Capturing pays at 32 rows after " : "Capturing does not pay at 32 rows ("));
  }
}

TEST_CASE("D15: TRIAGE_PROFILER_SPANS turns spans on; wrong uses of --profile") {
  const Bench bench;
  const std::vector<std::string> shown = {"exec", "-e", "print(triage.config.profiler_spans)"};
  CHECK(triage_program(bench.folder, shown).out == "false\n");
  {
    const Variable on("TRIAGE_PROFILER_SPANS", "1");
    CHECK(triage_program(bench.folder, shown).out == "true\n");
  }
  const auto refused = [&](const std::vector<std::string>& more, const std::string& part) {
    const Ran ran = bench(more);
    CAPTURE(ran.err);
    CHECK(ran.status == 2);
    CHECK(ran.out.empty());
    CHECK(has(ran.err, part));
  };
  refused({"--backend", "eager"}, "--profile");
  refused({"--profile", "trace.json", "--backend", "eagr"}, "eager");
  refused({"--profile", "sorted.lua"}, "--profile");
  refused({"--profile", "nowhere/trace.json"}, "nowhere");
  CHECK(bench.folder.names() == std::vector<std::string>{"sorted.lua"});  // nothing half-written is left
}
