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

TEST_CASE("the debug folder has the graph before and after passes, groups, C++ that compiles, guards and times") {
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
  const std::string compile = "c++ -std=c++20 -O0 -fopenmp-simd -fPIC -w -c " +
                              shell_quoted((graphs[0] / "output_code.cpp").string()) + " -o " +
                              shell_quoted((folder / "code.o"));
  CHECK(std::system(compile.c_str()) == 0);
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
