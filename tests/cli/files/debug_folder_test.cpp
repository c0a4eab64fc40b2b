// The debug folder (TRIAGE_COMPILE_DEBUG): what is in it, and what cannot be written.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "tests/cli/program.h"
#include "tests/cli/variable.h"

namespace {

namespace fs = std::filesystem;

constexpr const char* layer_norm = R"(
local model = nn.Sequential(nn.Linear(10, 10), nn.LayerNorm(10), nn.ReLU())
local f = triage.compile(function(x) return model(x) end, {name = "../test_model"})
f(torch.ones({10, 10})):sum():backward()
)";

/// Strides, gradients, random numbers and flags; a graph break; a backend of the script.
constexpr const char* several_graphs = R"(
local function body(x, y)
  local z = (x * y):tanh() + torch.rand({4, 3}, {dtype = torch.float64})
  return z * 2, flag_nan(z, "z")
end
local whole = triage.compile(body, {name = "whole", backend = "faulty_result:tanh"})
local x = torch.randn({3, 4}, {dtype = torch.float64}):t()
whole(x:detach():requires_grad_(true), torch.ones({4, 3}))
local parts = triage.compile(function(x, y)
  local z, f = body(x, y)
  if z:sum():item() > -1e9 then z = z:relu() end
  return z * 2, f
end, {name = "parts", warn = false})
for call = 1, 3 do parts(x, torch.ones({4, 3})) end
local own = triage.compile(function(x) return x + 1 end, {name = "own", backend = function(graph) return graph end})
own(torch.ones({2}))
)";

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
  return found;
}

}  // namespace

TEST_CASE(
    "D12, D13: the debug folder has the graph before and after passes, groups, C++ that compiles, guards and times") {
  const TemporaryFolder folder;
  write_bytes(folder / "model.lua", layer_norm);
  const Variable debug("TRIAGE_COMPILE_DEBUG", "profile.json");
  const Ran ran = triage_program(folder, {"exec", "model.lua"});
  CHECK(ran.status == 0);
  CHECK(ran.err.empty());
  const std::vector<fs::path> runs = folders_in(folder / "triage_debug");
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].filename().string().rfind("run_", 0) == 0);
  const std::vector<fs::path> graphs = folders_in(runs[0]);
  REQUIRE(graphs.size() == 1);
  CHECK(graphs[0].filename() == "_.._test_model_1");
  const auto file = [&](const char* name) { return read_bytes((graphs[0] / name).string()); };
  CHECK(has(file("graph_readable.txt"), "aten::layer_norm"));
  CHECK(has(file("graph_transformed.txt"), "aten::layer_norm"));
  CHECK(has(file("joint_graph.txt"), "_backward"));
  CHECK(has(file("ir_pre_fusion.txt"), "  body   aten::"));
  CHECK(has(file("ir_post_fusion.txt"), "body, for each row"));
  CHECK(has(file("guards.txt"), "x: dtype float32, rank 2"));
  CHECK(has(file("debug.log"), "[debug] [capture] "));
  CHECK(has(file("debug.log"), "Step 1: capture of '../test_model'"));
  CHECK(parse_json(file("timing.json")).size() >= 3);
  CHECK(parse_json(file("profile.json")).at("traceEvents").size() == parse_json(file("timing.json")).size());
  CHECK(has(file("output_code.txt"), "\ntape of "));
  CHECK(has(file("output_code.txt"), "  loop over ["));
  CHECK(has(file("step_times.txt"), "us a call, of "));
  CHECK(has(file("step_times.txt"), " tape of "));
}

TEST_CASE("D12: graph_runnable.lua runs each graph again, with inputs of the same kinds") {
  const TemporaryFolder folder;
  write_bytes(folder / "broken.lua", several_graphs);
  const Variable debug("TRIAGE_COMPILE_DEBUG", "1");
  REQUIRE(triage_program(folder, {"exec", "broken.lua"}).status == 0);
  const std::vector<fs::path> graphs = folders_in(folders_in(folder / "triage_debug").at(0));
  std::string all;
  int programs = 0;
  for (const fs::path& graph : graphs) {
    CAPTURE(graph.string());
    REQUIRE(fs::exists(graph / "graph_runnable.lua") == fs::exists(graph / "graph_transformed.txt"));
    if (!fs::exists(graph / "graph_runnable.lua")) continue;  // a capture that was given up
    ++programs;
    const Ran ran = triage_program(folder, {"exec", (graph / "graph_runnable.lua").string()});
    CHECK_MESSAGE(ran.status == 0, ran.err);
    all += read_bytes((graph / "graph_runnable.lua").string());
  }
  CHECK(programs >= 4);  // the whole graph, one before a break and one behind it, one of a backend of the script
  CHECK(has(all, "{shape = {4, 3}, stride = {1, 4}, dtype = \"float64\", device = \"cpu\", requires_grad = true"));
  CHECK(has(all, "backend = \"faulty_result:tanh\""));
  CHECK(has(all, "-- Its backend is the script's own."));
  const TemporaryFolder other;
  const Variable less("TRIAGE_COMPILE_DEBUG", "-graph_runnable.lua");
  write_bytes(other / "broken.lua", several_graphs);
  REQUIRE(triage_program(other, {"exec", "broken.lua"}).status == 0);
  for (const fs::path& graph : folders_in(folders_in(other / "triage_debug").at(0)))
    CHECK_FALSE(fs::exists(graph / "graph_runnable.lua"));
}

TEST_CASE(
    "D13: graph.svg is drawn by Graphviz where it is asked for; without Graphviz there is graph.dot, and a word") {
  const TemporaryFolder folder, programs;
  write_bytes(folder / "model.lua",
              "triage.compile(function(x) return x:tanh() end, {name = 'a\"\\\\b'})(torch.ones({2}))\n");
  const std::string path = std::getenv("PATH");
  const auto drawn = [&](const std::string& words, const std::string& search) {
    fs::remove_all(folder / "triage_debug");
    const Variable debug("TRIAGE_COMPILE_DEBUG", words);
    const Ran ran = [&] {
      const Variable search_path("PATH", search);
      return triage_program(folder, {"exec", "model.lua"});
    }();
    ::setenv("PATH", path.c_str(), 1);
    CHECK(ran.status == 0);
    const fs::path graph = folders_in(folders_in(folder / "triage_debug").at(0)).at(0);
    const bool has_svg = fs::exists(graph / "graph.svg"), has_dot = fs::exists(graph / "graph.dot");
    return std::tuple(ran.err, has_dot ? read_bytes(graph / "graph.dot") : "",
                      has_svg ? read_bytes(graph / "graph.svg") : "");
  };
  const auto [silence, no_dot, no_svg] = drawn("1", path);
  CHECK((silence + no_dot + no_svg).empty());

  const auto [word, dot, nothing] = drawn("graph.svg", programs.path().string());
  CHECK(has(word, "no graph.svg, because Graphviz did not draw it: cannot start `dot`"));
  CHECK(word.find("no graph.svg") == word.rfind("no graph.svg"));
  CHECK(nothing.empty());
  CHECK(has(dot, "digraph \"a\\\"\\\\b\" {"));
  CHECK(has(dot, "[label=\"aten::tanh\\nmodel.lua:1\"]"));
  CHECK(has(dot, "n0 -> n1 [label=\" %x f32[2]\"]"));

  write_bytes(programs / "dot", "#!/bin/sh\necho drawn > \"$3\"\n");  // dot -Tsvg -o FILE
  fs::permissions(programs / "dot", fs::perms::owner_all);
  const auto [no_word, same, svg] = drawn("graph.svg", programs.path().string() + ":" + path);
  CHECK(no_word.empty());
  CHECK(same == dot);
  CHECK(svg == "drawn\n");

  write_bytes(programs / "dot", "#!/bin/sh\necho out of order\nexit 3\n");
  CHECK(has(std::get<0>(drawn("graph.svg", programs.path().string() + ":" + path)),
            "`dot` failed with exit status 3: out of order"));
  CHECK(std::get<0>(drawn("graph.dot", programs.path().string() + ":" + path)).empty());  // the text alone
}

TEST_CASE("a debug folder that cannot be written is one error, and the run goes on") {
  const TemporaryFolder folder;
  write_bytes(folder / "model.lua", layer_norm);
  write_bytes(folder / "file", "");
  const Variable debug("TRIAGE_COMPILE_DEBUG", "1"), root("TRIAGE_DEBUG_DIR", "file");
  const Ran ran = triage_program(folder, {"exec", "model.lua"});
  CHECK(ran.status == 0);
  CHECK(has(ran.err, "the debug folder \"file\" is not written any further"));
  CHECK(ran.err.find("not written") == ran.err.rfind("not written"));
}
