// The debug folder (TRIAGE_COMPILE_DEBUG): what is in it, and what cannot be written.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "program.h"
#include "variable.h"

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

bool has(const std::string& text, const std::string& part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
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
  const std::string compile =
      "cd " + shell_quoted(graphs[0].string()) + " && c++ -std=c++20 -fopenmp-simd -c output_code.cpp";
  CHECK(std::system(compile.c_str()) == 0);  // the command of docs/logs.md
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
