// `triage minify`: faults in the middle of large random graphs shrink to the operator at fault, and what is written
// fails alone.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/cli/folder.h"
#include "tests/cli/program.h"
#include "tests/cli/variable.h"

namespace {

struct Case {
  std::string backend;
  int nodes = 200;
  bool backward = false, numbers = false;
  int rows = 8;
  std::string script = "";  // before the call
  std::string op = "erf";   // at fault
};

/// A graph of elementwise operators with the one at fault about in its middle.
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
    if (i == fault) call = "aten::" + of.op + "(%x)";
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

/// A backend in Lua that does `what` where the graph has the operator.
std::string lua_backend(const std::string& what, const std::string& op = "erf") {
  return "triage.register_backend('own', function(graph)\n  for _, node in ipairs(graph.nodes) do\n"
         "    if node.op == 'aten::" +
         op + "' then " + what + " end\n  end\n  return graph\nend)\n";
}

const char* const count_text = std::getenv("TRIAGE_MINIFY_GRAPHS");

}  // namespace

TEST_CASE("D05 D08: a fault in a graph of 200 nodes shrinks to its operator") {
  for (const char* backend : {"faulty_compile:erf", "faulty_run:erf"}) {
    const auto report = minified({backend}, 1);
    CHECK(report["nodes"] == 1);
    CHECK(report["operators"] == "aten::erf");
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

TEST_CASE("D07: NaN in other places shrinks to the operator that made them") {
  const std::string no_nan = lua_backend(
      "return function(...) local r = {graph(...)} for i = 1, #r do r[i] = r[i]:nan_to_num(0.0) end "
      "return table.unpack(r) end",
      "log");
  const auto report = minified({"own", 200, false, true, 8, no_nan, "log"}, 8);
  CHECK(report["nodes"] == 1);
  CHECK(report["failure"].get<std::string>().find("has other NaN or Inf places") != std::string::npos);
}

TEST_CASE("D07: wrong flags shrink to the operation that makes them") {
  TemporaryFolder folder;
  write_bytes(folder / "flags.lua", R"(return policy {
  run = function(z)
    local y = (z * 2 + 1):tanh()
    local f = flag_nan(y, "y")
    return fix(y:exp() * 3, f, "y"), f
  end,
}
)");
  const Variable after("TRIAGE_REPRO_AFTER", "capture"), level("TRIAGE_REPRO_LEVEL", "4");
  const Ran ran = triage_program(
      folder, {"run", "flags.lua", "--input", "z=ones:6x2", "--backend", "faulty_result:triage::flag_nan"});
  CHECK(ran.status == 0);
  const auto repro = std::filesystem::directory_iterator(folder / "triage_repro")->path() / "repro.lua";
  REQUIRE_MESSAGE(std::filesystem::exists(repro), ran.err);
  const std::string text = read_bytes(repro.string());
  CAPTURE(text);
  CHECK(text.find("triage::flag_nan") != std::string::npos);
  CHECK(text.find("aten::") == std::string::npos);
  const Ran alone = triage_program(folder, {"exec", repro.string()});
  CHECK(alone.status == 1);
  CHECK_MESSAGE(alone.err.find("gives wrong numbers: output 0 differs") != std::string::npos, alone.err);
}

namespace {

/// The program that the minifier makes of `program`.
std::string repro_of(const TemporaryFolder& folder, const std::string& program) {
  write_bytes(folder / "failing.lua", program);
  const Ran ran = triage_program(folder, {"minify", "failing.lua"});
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(triage_program(folder, {"exec", "repro.lua"}).status == 1);
  return read_bytes(folder / "repro.lua");
}

}  // namespace

TEST_CASE("D08: numbers, values, types, sizes and strides are as simple as the failure allows") {
  const auto program = [](const std::string& backend) {
    return std::string("triage.run_graph {\n  backend = ") + backend + R"(, backward = true,
  inputs = {{shape = {6, 4}, stride = {1, 6}, dtype = "float64", requires_grad = true, seed = 4},
    {shape = {6, 4}, dtype = "float64", seed = 5}},
  graph = [[
graph g(%x: "f64[6, 4]", %y: "f64[6, 4]"):
  %c: "f64[4]" = constant [0.5, 0.25, 3.0, 4.0]
  %0 = aten::mul.Tensor(%x, %y)
  %1 = aten::add.Tensor(%0, %c, 0.7312)
  %2 = aten::hardtanh(%1, -0.7312, 3)
  return %2
]]}
)";
  };
  const TemporaryFolder folder;
  const std::string simple = repro_of(folder, program("'faulty_compile:add'"));
  CAPTURE(simple);
  CHECK(simple.find("0.7312") == std::string::npos);
  CHECK(simple.find("0.25") == std::string::npos);
  CHECK(
      simple.find(
          "shape = {1, 1}, stride = {1, 1}, dtype = \"float32\", device = \"cpu\", requires_grad = false, fill = 1") !=
      std::string::npos);
  CHECK(simple.find("backward = false") != std::string::npos);
  for (const char* part : {"-- triage ", ", LibTorch ", " threads, backend faulty_compile:add", "seed = "})
    CHECK(simple.find(part) != std::string::npos);
  // Where the number matters, it stays.
  const std::string kept = repro_of(folder, program(R"(function(graph)
    for _, node in ipairs(graph.nodes) do if node.arguments.alpha == 0.7312 then error("alpha") end end
    return graph
  end)"));
  CAPTURE(kept);
  CHECK(kept.find("0.7312") != std::string::npos);
  CHECK(kept.find("hardtanh") == std::string::npos);
}

TEST_CASE("D08: values of inputs stay where they matter, or are the simplest that fail") {
  const TemporaryFolder folder;
  const std::string values = R"(values = "[1.5, -2.0, 3.25]")";
  const auto program = [&](const std::string& condition) {
    return "triage.register_backend('own', function(graph) return function(x)\n  if " + condition +
           " then error('no') end return graph(x)\nend end)\n" +
           "triage.run_graph {backend = 'own', inputs = {{shape = {3}, dtype = 'float32', " + values +
           "}},\n  graph = 'graph g(%x: \"f32[3]\"):\\n  %0 = aten::exp(%x)\\n  return %0\\n'}\n";
  };
  CHECK(repro_of(folder, program("x:min():item() == -2")).find("-2.0") != std::string::npos);
  CHECK(repro_of(folder, program("x:max():item() > 1.25")).find("fill = \"arange\"") != std::string::npos);
  CHECK(repro_of(folder, program("x:max():item() < 4")).find("fill = 1") != std::string::npos);
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

TEST_CASE("D05: an operator that is slow is not taken for the one that hangs; one limit is named everywhere") {
  const std::string sleeps =
      "triage.register_backend('own', function(graph)\n  local slow = false\n  for _, node in ipairs(graph.nodes) do\n"
      "    if node.op == 'aten::erf' then while true do end end\n    slow = slow or node.op == 'aten::sigmoid'\n  end\n"
      "  if slow then os.execute('sleep 1.3') end\n  return graph\nend)\n";
  TemporaryFolder folder;
  write_bytes(folder / "failing.lua", random_program({"own", 24, false, false, 8, sleeps}, 6));
  const Ran ran = triage_program(folder, {"minify", "failing.lua", "--json", "--time-limit", "4"});
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const nlohmann::json report = ran.json();
  CHECK(report["nodes"] == 1);
  CHECK(report["failure"] == "does not end within 4 s");
  const std::string repro = read_bytes(folder / "repro.lua");
  CAPTURE(repro);
  CHECK(repro.find("aten::erf(") != std::string::npos);
  CHECK(repro.find("-- It fails: backend `own` does not end within 4 s\n") != std::string::npos);
  CHECK(repro.find("isolated = 4,") != std::string::npos);
  const Ran alone = triage_program(folder, {"exec", "repro.lua"});
  CHECK(alone.status == 1);
  CHECK(alone.err.find("backend `own` does not end within 4 s") != std::string::npos);
}

namespace {

/// Kinds of faults at an erf: a shipped backend, or one in Lua.
std::vector<Case> kinds_of_faults() {
  const std::string results = "return function(x, ...) local r = {graph(x, ...)} ", end = " return table.unpack(r) end";
  const std::string gradient =
      "for i = 1, #r do if r[i].requires_grad then r[i] = r[i] + (r[i] - r[i]:detach()) end end";
  std::vector<Case> kinds = {
      {"faulty_compile:erf"},
      {"faulty_run:erf"},
      {"faulty_result:erf", 200, false, true},
      {"faulty_aot_result:erf", 200, true, true},
      {"own", 200, true, true, 8, lua_backend(results + gradient + end)},
      {"own", 200, false, true, 33, lua_backend(results + "if x:size(0) % 16 == 1 then r[1] = r[1] + 1 end" + end)},
      {"own", 200, false, true, 8, lua_backend(results + "r[1] = r[1] / 0" + end)},
      {"own", 200, false, false, 8, lua_backend("os.execute('kill -SEGV $PPID')")}};
  return kinds;
}

}  // namespace

TEST_CASE("D05 D07 D08: random graphs with a seeded fault shrink to at most 3 nodes") {
  const std::vector<Case> kinds = kinds_of_faults();
  const int count = count_text ? std::atoi(count_text) : static_cast<int>(kinds.size());
  int small = 0;
  double slowest = 0;
  for (int i = 0; i < count; ++i) {
    Case of = kinds[static_cast<size_t>(i) % kinds.size()];
    of.nodes = count_text ? 50 + (i * 97) % 251 : 50;
    const auto start = std::chrono::steady_clock::now();
    small += minified(of, static_cast<unsigned>(100 + i))["nodes"] <= 3;
    slowest = std::max(slowest, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  CHECK(small * 25 >= count * 24);
  MESSAGE(small << " of " << count << " graphs shrank to 3 nodes or fewer; the slowest took " << slowest << " s");
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
  const std::string whole = random_program({"faulty_run:erf", 20}, 1);
  const size_t node = whole.find("aten::");
  for (const std::string& damaged : {whole.substr(0, node), whole.substr(0, node) + "no_such::" + whole.substr(node),
                                     std::string("error('damaged')\n") + whole}) {
    std::filesystem::create_directories(folder / "damaged");
    write_bytes((std::filesystem::path(folder / "damaged") / "graph_runnable.lua").string(), damaged);
    ran = triage_program(folder, {"minify", "damaged"});
    CHECK(ran.status == 2);
    CHECK_MESSAGE(ran.err.find("graph_runnable.lua\" does not get as far as its graph: ") != std::string::npos,
                  ran.err);
    CHECK(ran.err.find("Expected a program that triage has written") != std::string::npos);
  }
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
