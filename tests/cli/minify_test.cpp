// `triage minify`: faults in the middle of large random graphs shrink to the operator at fault, and what is written fails alone.
#include <doctest/doctest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "folder.h"
#include "program.h"

namespace {

struct Case {
  std::string backend;
  int nodes = 200;
  bool backward = false, numbers = false;
  int rows = 8;
  std::string script = "";  // before the call
};

/// A graph of elementwise operators with one `aten::erf` about in its middle.
std::string random_program(const Case& of, unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](size_t most) { return static_cast<size_t>(random() % most); };
  const std::vector<std::string> unary = {"tanh", "sigmoid", "sin", "cos", "neg", "atan"};
  const std::vector<std::string> binary = {"add.Tensor", "mul.Tensor", "maximum", "minimum"};
  std::vector<std::string> values = {"%x", "%y"};
  const auto recent = [&](size_t most) { return values[values.size() - 1 - below(std::min(most, values.size()))]; };
  const auto fault = static_cast<size_t>(of.nodes) / 4 + below(static_cast<size_t>(of.nodes) / 2);
  std::string lines;
  for (size_t i = 0; i < static_cast<size_t>(of.nodes); ++i) {
    std::string call = "aten::" + unary[below(unary.size())] + "(" + recent(6) + ")";
    if (below(5) < 2) call = "aten::" + binary[below(binary.size())] + "(" + recent(6) + ", " + recent(10) + ")";
    if (i == fault) call = "aten::erf(%x)";
    lines += "  %" + std::to_string(i) + " = " + call + "\n";
    values.push_back("%" + std::to_string(i));
  }
  const std::string shape = std::to_string(of.rows), type = "\"f32[" + shape + ", 16]\"";
  const std::string grad = of.backward ? "true" : "false";
  return of.script + "triage.run_graph {\n  backend = \"" + of.backend + "\", backward = " + grad + "," +
         (of.numbers ? " check = \"numbers\",\n" : "\n") + "  inputs = {{shape = {" + shape +
         ", 16}, dtype = \"float32\", requires_grad = " + grad + ", seed = 1},\n    {shape = {" + shape +
         ", 16}, dtype = \"float32\", seed = 2}},\n  graph = [[\ngraph random(%x: " + type + ", %y: " + type + "):\n" +
         lines + "  return " + values.back() + ", %" + std::to_string(fault) + "\n]]}\n";
}

/// Minifies it, runs the result alone, and returns what the program reported.
nlohmann::json minified(const Case& of, unsigned seed, const std::vector<std::string>& options = {}) {
  TemporaryFolder folder;
  write_bytes(folder / "failing.lua", random_program(of, seed));
  std::vector<std::string> arguments = {"minify", "failing.lua", "--json"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const Ran ran = triage_program(folder, arguments);
  CAPTURE(of.backend);
  CAPTURE(seed);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const nlohmann::json report = ran.json();
  CHECK(report["nodes_before"] == of.nodes);
  CHECK(report["finished"] == true);
  const Ran alone = triage_program(folder, {"exec", "repro.lua"});
  CHECK(alone.status == 1);
  CHECK_MESSAGE(alone.err.find(report["failure"].get<std::string>()) != std::string::npos, alone.err);
  return report;
}

/// A backend in Lua that does `what` where the graph has an erf.
std::string lua_backend(const std::string& what) {
  return "triage.register_backend('own', function(graph)\n  for _, node in ipairs(graph.nodes) do\n"
         "    if node.op == 'aten::erf' then " +
         what + " end\n  end\n  return graph\nend)\n";
}

const char* const count_text = std::getenv("TRIAGE_MINIFY_GRAPHS");

}  // namespace

TEST_CASE("D05 D08: a fault in a graph of 200 nodes shrinks to its operator") {
  for (const char* backend : {"faulty_compile:erf", "faulty_run:erf"}) {
    const auto report = minified({backend}, 1);
    CHECK(report["nodes"] == 1);
    CHECK(report["candidates"] < 60);
  }
}

TEST_CASE("D07: wrong numbers shrink too: in results, in gradients only, for some sizes only") {
  CHECK(minified({"faulty_result:erf", 200, false, true}, 2)["nodes"] == 1);
  const std::string wrong_gradient = lua_backend(
      "return function(...) local r = {graph(...)} for i = 1, #r do if r[i].requires_grad then "
      "r[i] = r[i] + (r[i] - r[i]:detach()) end end return table.unpack(r) end");
  const auto report = minified({"own", 200, true, true, 8, wrong_gradient}, 3);
  CHECK(report["nodes"] == 1);
  CHECK(report["failure"].get<std::string>().find("gradient 0") != std::string::npos);
  const std::string wrong_rows = lua_backend(
      "return function(x, ...) local r = {graph(x, ...)} if x:size(0) % 16 == 1 then r[1] = r[1] + 1 end "
      "return table.unpack(r) end");
  CHECK(minified({"own", 200, false, true, 33, wrong_rows}, 4)["nodes"] <= 2);
}

TEST_CASE("D05: a backend that crashes, hangs or ends the process is a result, not the end of the minifier") {
  const auto crash = minified({"own", 200, false, false, 8, lua_backend("os.execute('kill -SEGV $PPID')")}, 5);
  CHECK(crash["nodes"] == 1);
  CHECK(crash["failure"].get<std::string>().find("signal 11") != std::string::npos);
  const auto hang =
      minified({"own", 60, false, false, 8, lua_backend("while true do end")}, 6, {"--time-limit", "0.3"});
  CHECK(hang["nodes"] == 1);
  CHECK(hang["failure"].get<std::string>().find("does not end within") != std::string::npos);
  CHECK(minified({"own", 60, false, false, 8, lua_backend("os.exit(3)")}, 7)["nodes"] == 1);
}

TEST_CASE("D05 D08: random graphs with a seeded fault shrink to at most 3 nodes") {
  const int count = count_text ? std::atoi(count_text) : 3;
  const char* const backends[] = {"faulty_compile:erf", "faulty_run:erf", "faulty_result:erf"};
  int small = 0;
  for (int i = 0; i < count; ++i) {
    Case of{backends[i % 3], 50 + (i * 97) % 251};
    of.numbers = i % 3 == 2;
    small += minified(of, static_cast<unsigned>(100 + i))["nodes"] <= 3;
  }
  CHECK(small * 25 >= count * 24);
}

TEST_CASE("D05: what cannot be minified is an error that says why") {
  TemporaryFolder folder;
  write_bytes(folder / "runs.lua", random_program({"eager", 20}, 1));
  Ran ran = triage_program(folder, {"minify", "runs.lua"});
  CHECK(ran.status == 2);
  CHECK(ran.err.find("the program does not fail: backend `eager` runs the graph") != std::string::npos);
  write_bytes(folder / "other.lua", "print('nothing')\n");
  ran = triage_program(folder, {"minify", "other.lua"});
  CHECK(ran.status == 2);
  CHECK(ran.err.find("calls no triage.run_graph") != std::string::npos);
  CHECK(triage_program(folder, {"minify", "missing.lua"}).status == 2);
  CHECK(triage_program(folder, {"minify", "."}).err.find("has no minifier_launcher.lua") != std::string::npos);
}

TEST_CASE("D04: a run says that eager answers in place of a backend that cannot compile the graph") {
  TemporaryFolder folder;
  write_bytes(folder / "p.lua",
              "return policy {inputs = {'z'}, outputs = {'z'}, run = function(z) return z:tanh() end}\n");
  const Ran ran =
      triage_program(folder, {"run", "p.lua", "--input", "z=randn:4x4", "--backend", "faulty_compile:tanh"});
  CHECK(ran.status == 0);
  CHECK(ran.err.find("runs with the eager backend, because its own backend cannot compile") != std::string::npos);
}
