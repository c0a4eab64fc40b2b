// TRIAGE_REPRO_AFTER: a graph that its backend fails on is written as a program and minified, and the run goes on.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#include "tests/cli/program.h"
#include "tests/cli/variable.h"

namespace {

namespace fs = std::filesystem;

/// Five Linear layers behind a relu, for the backend that the script is called with.
constexpr const char* five_layers = R"(
local layers = {}
for i = 1, 5 do layers[i] = nn.Linear(200, 200) end
local model = nn.Sequential(table.unpack(layers))
local f = triage.compile(function(x, y) return model((x + y):relu()) end, {name = "model", backend = arg[1]})
print(f(torch.ones({200, 200}), torch.ones({200, 200})):size(0))
)";

/// The same, trained.
constexpr const char* five_layers_backward = R"(
local layers = {}
for i = 1, 5 do layers[i] = nn.Linear(20, 20) end
local model = nn.Sequential(table.unpack(layers))
local f = triage.compile(function(x, y) return model((x + y):relu()) end, {name = "model", backend = arg[1]})
local x = torch.ones({200, 20}, {requires_grad = true})
for _ = 1, 2 do f(x, torch.ones({200, 20})):sum():backward() end
print(x.grad:size(0))
)";

/// A run of it, and what it has left for the minifier.
struct Repro {
  TemporaryFolder folder;
  Ran ran;
  std::vector<fs::path> found;

  Repro(const std::string& backend, const std::string& level, const std::string& stage = "capture",
        const char* script = five_layers, int status = 0) {
    write_bytes(folder / "model.lua", script);
    const Variable after("TRIAGE_REPRO_AFTER", stage), at("TRIAGE_REPRO_LEVEL", level);
    ran = triage_program(folder, {"exec", "model.lua", backend});
    CAPTURE(ran.err);
    CHECK(ran.status == status);
    CHECK(ran.out == (status ? "" : "200\n"));
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder / "triage_repro", none)) found.push_back(entry.path());
  }

  /// The repro, in a process of its own, fails as the whole graph does. Its text.
  std::string text_of_repro(const std::string& message) const {
    REQUIRE_MESSAGE(found.size() == 1, ran.err);
    const fs::path file = found[0] / "repro.lua";
    CHECK(ran.err.find("`triage exec " + file.string() + "`") != std::string::npos);
    CHECK_MESSAGE(ran.err.find(" fails: backend `") != std::string::npos, ran.err);
    CHECK_MESSAGE(ran.err.find(message, ran.err.find(" fails: backend `")) != std::string::npos, ran.err);
    const Ran alone = triage_program(folder, {"exec", file.string()});
    CHECK(alone.status == 1);
    CHECK_MESSAGE(alone.err.find(message) != std::string::npos, alone.err);
    return read_bytes(file.string());
  }

  void check_fails(const std::string& message) const {
    const std::string text = text_of_repro(message);
    CAPTURE(text);
    CHECK(text.find("%1: \"f32[1, 1]\" = aten::relu(") != std::string::npos);
    CHECK(text.find("aten::addmm") == std::string::npos);
    CHECK(text.find("aten::linear") == std::string::npos);
  }
};

}  // namespace

TEST_CASE("D05 D08: a graph that its backend cannot compile is minified when asked for, and `eager` answers") {
  const Repro repro("faulty_compile:relu", "2");
  repro.check_fails("faulty_compile: ");
  CHECK(repro.ran.err.find("runs with the eager backend") != std::string::npos);
}

TEST_CASE("D05: level 1 writes the whole graph, and starts nothing") {
  const Repro repro("faulty_compile:relu", "1");
  REQUIRE(repro.found.size() == 1);
  CHECK_FALSE(fs::exists(repro.found[0] / "repro.lua"));
  CHECK_FALSE(fs::exists(repro.found[0] / "minify.log"));
  const Ran alone = triage_program(repro.folder, {"exec", (repro.found[0] / "minifier_launcher.lua").string()});
  CHECK(alone.status == 1);
  const Ran by_hand = triage_program(repro.folder, {"minify", repro.found[0].string()});
  CHECK(by_hand.status == 0);
  CHECK(fs::exists(repro.found[0] / "repro.lua"));
}

TEST_CASE(
    "D05: level 3 finds what fails when the graph runs; level 4 wrong numbers too; what is right leaves nothing") {
  Repro("faulty_run:relu", "3").check_fails("faulty_run: ");
  Repro("faulty_result:relu", "4").check_fails("gives wrong numbers");
  CHECK(Repro("faulty_result:relu", "3").found.empty());
  const Repro right("fused", "4");
  CHECK(right.found.empty());
  CHECK(right.ran.err.empty());
}

TEST_CASE("D05: the log says what fails and where, and at level 3 that the program goes on with the same backend") {
  const auto says = [](const Repro& repro, const std::string& failure, const char* place) {
    const std::string left = ". What is left of it: aten::relu (" + std::string(place) + "), `triage exec ";
    CHECK_MESSAGE(repro.ran.err.find("graph `model` fails: backend `" + failure) != std::string::npos, repro.ran.err);
    CHECK_MESSAGE(repro.ran.err.find(left) != std::string::npos, repro.ran.err);
    return repro.ran.err.find("; the run goes on with the same backend; the whole graph: ") != std::string::npos;
  };
  CHECK_FALSE(
      says(Repro("faulty_compile:relu", "2"), "faulty_compile:relu` cannot compile the graph: ", "model.lua:5"));
  CHECK(says(Repro("faulty_result:relu", "4"), "faulty_result:relu` gives wrong numbers: ", "model.lua:5"));
  const TemporaryFolder folder;
  write_bytes(folder / "own.lua", "return function(graph) os.execute('kill -SEGV $PPID') return graph end\n");
  write_bytes(folder / "crash.lua", R"(triage.register_backend("own", dofile "own.lua")
print("before the call")
triage.compile(function(x)
  return (x + 1):relu()
end, {name = "model", backend = "own"})(torch.ones({3}))
)");
  const Variable after("TRIAGE_REPRO_AFTER", "capture"), level("TRIAGE_REPRO_LEVEL", "3");
  const Variable backends("TRIAGE_REPRO_BACKENDS", "own.lua");
  const Ran ran = triage_program(folder, {"exec", "crash.lua"});
  CHECK(ran.status != 0);
  CHECK_MESSAGE(
      ran.err.find("graph `model` fails: backend `own` crashes the process with signal 11 (Segmentation fault)"
                   ". What is left of it: aten::") != std::string::npos,
      ran.err);
  CHECK(ran.err.find(" (crash.lua:4), `triage exec ") != std::string::npos);
}

TEST_CASE("D06: after the joint graph, the half that cannot be compiled is minified, and runs alone") {
  const Repro backward("faulty_aot_compile:threshold_backward", "2", "aot", five_layers_backward);
  const std::string text = backward.text_of_repro("faulty_compile: ");
  CAPTURE(text);
  CHECK(text.find("aten::threshold_backward(") != std::string::npos);
  CHECK(text.find("aten::mm") == std::string::npos);
  CHECK(text.find("graph model_backward(") != std::string::npos);
  CHECK(text.find("backward = false") != std::string::npos);
  CHECK(backward.ran.err.find("runs instead of `faulty_aot_compile:threshold_backward`") != std::string::npos);
  const Repro forward("faulty_aot_compile:relu", "2", "aot", five_layers_backward);
  CHECK(forward.text_of_repro("faulty_compile: ").find("aten::relu(") != std::string::npos);
}

TEST_CASE("D06: levels 1, 3 and 4 after the joint graph; what is right leaves nothing") {
  const Repro whole("faulty_aot_compile:threshold_backward", "1", "aot", five_layers_backward);
  REQUIRE(whole.found.size() == 1);
  const std::string launcher = (whole.found[0] / "minifier_launcher.lua").string();
  CHECK(read_bytes(launcher).find("aten::mm") != std::string::npos);
  CHECK(triage_program(whole.folder, {"exec", launcher}).status == 1);
  // Autograd has no other way back when a half fails in its run: that is an error of the script.
  const Repro fails("faulty_aot_run:threshold_backward", "3", "aot", five_layers_backward, 1);
  CHECK(fails.text_of_repro("faulty_run: ").find("aten::threshold_backward(") != std::string::npos);
  const Repro wrong("faulty_aot_result:threshold_backward", "4", "aot", five_layers_backward);
  CHECK(wrong.text_of_repro("gives wrong numbers").find("aten::threshold_backward(") != std::string::npos);
  const Repro right("fused", "4", "aot", five_layers_backward);
  CHECK(right.found.empty());
  CHECK(right.ran.err.empty());
}

TEST_CASE("D06: without gradients, and for backends without a joint graph, it is the graph that the backend gets") {
  Repro("faulty_aot_compile:relu", "2", "aot").text_of_repro("faulty_compile: ");
  Repro("faulty_compile:relu", "2", "aot").check_fails("faulty_compile: ");
  CHECK(Repro("faulty_aot_result:relu", "4", "capture").found.size() == 1);  // the whole backend, as captured
}

TEST_CASE("D05: a backend that a file registers is minified without further ado, by its module or by a setting") {
  constexpr const char* toy = R"(
local function toy_compiler(graph)
  for _, node in ipairs(graph.nodes) do
    if node.op == "aten::relu" then error("toy\rprint(1) --") end
  end
  return graph
end
triage.register_backend("toy", toy_compiler)
return toy_compiler  -- the last line)";
  constexpr const char* call =
      "triage.compile(function(x) return (x + 1):relu() end, {backend = 'toy'})(torch.ones({3}))\n";
  const auto check = [&](const std::string& script, const char* file) {
    const TemporaryFolder folder;
    write_bytes(folder / "toy.lua", toy);
    write_bytes(folder / "own.lua", script);
    const Variable after("TRIAGE_REPRO_AFTER", "capture"), backends("TRIAGE_REPRO_BACKENDS", file);
    const Ran ran = triage_program(folder, {"exec", "own.lua"});
    CHECK(ran.status == 0);
    const fs::path repro = fs::directory_iterator(folder / "triage_repro")->path() / "repro.lua";
    REQUIRE_MESSAGE(fs::exists(repro), ran.err);
    fs::remove(folder / "toy.lua");  // the repro is one file
    const Ran alone = triage_program(folder, {"exec", repro.string()});
    CHECK(alone.status == 1);
    CHECK_MESSAGE(alone.err.find("toy") != std::string::npos, alone.err);
    CHECK(read_bytes(repro.string()).find("aten::add") == std::string::npos);
  };
  check(std::string("dofile 'toy.lua'\n") + call, "");
  check(std::string("require 'toy'\n") + call, "");
  check(std::string("triage.register_backend('toy', function() error('toy') end)\n") + call, "toy.lua");
  const std::string in_the_script =
      "triage.compile(function(x) return (x + 1):relu() end, {backend = function(graph) "
      "error('toy') end})(torch.ones({3}))\n";
  check(in_the_script, "toy.lua");  // the function that the file returns
  const TemporaryFolder folder;
  write_bytes(folder / "own.lua", std::string("triage.register_backend('toy', function() error('toy') end)\n") + call);
  const Variable after("TRIAGE_REPRO_AFTER", "capture"), backends("TRIAGE_REPRO_BACKENDS", "missing.lua");
  const Ran ran = triage_program(folder, {"exec", "own.lua"});
  CHECK(ran.status == 0);
  CHECK_MESSAGE(ran.err.find("cannot be written for the minifier: ") != std::string::npos, ran.err);
  CHECK(ran.err.find("missing.lua") != std::string::npos);
}

/// The program that the minifier's pages of torch.compile use: it makes its tensors itself.
constexpr const char* seed_program = R"(
local layers = {}
for i = 1, 5 do layers[i] = nn.Linear(200, 200) end
local model = nn.Sequential(table.unpack(layers))
require "toy"
local function test_backend_error()
  local y = torch.ones(200, 200)
  local x = torch.ones(200, 200)
  local z = x + y
  local a = torch.relu(z)
  return model(a)
end
local compiled_test_backend_error = triage.compile(test_backend_error, {backend = arg[1]})
print(compiled_test_backend_error():size(0))
)";

TEST_CASE(
    "D05 D06 D07 D08: the seed's program as it stands: tensors of its own reach the backend, and the repro fails "
    "alone") {
  const auto check = [](const char* backend, const char* level, const char* stage, const char* message) {
    CAPTURE(std::string(backend));
    const TemporaryFolder folder;
    write_bytes(folder / "toy.lua", R"(
triage.register_backend("toy_compiler", function(graph)
  for _, node in ipairs(graph.nodes) do
    if node.op == "aten::relu" then error("toy: relu") end
  end
  return graph
end))");
    write_bytes(folder / "seed.lua", seed_program);
    const Variable after("TRIAGE_REPRO_AFTER", stage), at("TRIAGE_REPRO_LEVEL", level);
    const Ran ran = triage_program(folder, {"exec", "seed.lua", backend});
    CHECK_MESSAGE(ran.out == "200\n", ran.err);
    REQUIRE_MESSAGE(fs::exists(folder / "triage_repro"), ran.err);
    const fs::path repro = fs::directory_iterator(folder / "triage_repro")->path() / "repro.lua";
    REQUIRE_MESSAGE(fs::exists(repro), ran.err);
    const std::string text = read_bytes(repro.string());
    CHECK_MESSAGE(text.find("aten::relu(") != std::string::npos, text);
    CHECK_MESSAGE(text.find("aten::linear") == std::string::npos, text);
    const Ran alone = triage_program(folder, {"exec", repro.string()});
    CHECK(alone.status == 1);
    CHECK_MESSAGE(alone.err.find(message) != std::string::npos, alone.err);
  };
  check("toy_compiler", "2", "capture", "toy: relu");                 // D05
  check("faulty_aot_compile:relu", "2", "aot", "faulty_compile: ");   // D06
  check("faulty_result:relu", "4", "capture", "faulty_result:relu");  // D07
}

TEST_CASE("D03: the C++ side of a backend that fails is told where it is asked for") {
  const TemporaryFolder folder;
  write_bytes(folder / "own.lua", R"(
if arg[1] then triage.config.verbose = true end
local function compiler() return torch.ones({2}):expand({3}) end
print(triage.compile(function(x) return x:relu() end, {name = "own", backend = compiler})(torch.ones({3})))
)");
  const auto shows = [&](std::vector<std::string> arguments) {
    const Ran ran = triage_program(folder, arguments);
    CHECK(ran.status == 0);
    CHECK_MESSAGE(ran.err.find("cannot compile graph") != std::string::npos, ran.err);
    return ran.err.find("frame #0") != std::string::npos;
  };
  CHECK_FALSE(shows({"exec", "own.lua"}));
  CHECK(shows({"exec", "own.lua", "verbose"}));
  const Variable verbose("TRIAGE_VERBOSE", "1");
  CHECK(shows({"exec", "own.lua"}));
}

TEST_CASE("D05: a backend of the script has to be registered in the program by hand, and the log says so") {
  const TemporaryFolder folder;
  write_bytes(folder / "own.lua", R"(
triage.config.repro_after, triage.config.repro_dir = "capture", "own"
local function toy_compiler(graph)
  for _, node in ipairs(graph.nodes) do
    if node.op == "aten::relu" then error("toy\rprint(1) --") end
  end
  return graph
end
triage.compile(function(x) return x:relu() end, {name = "own", backend = toy_compiler})(torch.ones({3}))
)");
  const Ran ran = triage_program(folder, {"exec", "own.lua"});
  CHECK(ran.status == 0);
  CHECK(ran.err.find("register it there first, then `triage minify ") != std::string::npos);
  const fs::path launcher = fs::directory_iterator(folder / "own")->path() / "minifier_launcher.lua";
  CHECK(read_bytes(launcher.string()).find('\r') == std::string::npos);
  write_bytes(
      folder / "registered.lua",
      "triage.register_backend('of the script', function(graph) error('toy') end)\n" + read_bytes(launcher.string()));
  CHECK(triage_program(folder, {"minify", "registered.lua"}).status == 0);
  const Ran alone = triage_program(folder, {"exec", "repro.lua"});
  CHECK(alone.status == 1);
  CHECK(alone.err.find("toy") != std::string::npos);
}

TEST_CASE("D05: a word that is no stage, and a level that there is not, are errors; a level alone is a warning") {
  const TemporaryFolder folder;
  write_bytes(folder / "model.lua", five_layers);
  const auto run = [&](const char* after, const char* level) {
    const Variable stage("TRIAGE_REPRO_AFTER", after), at("TRIAGE_REPRO_LEVEL", level);
    return triage_program(folder, {"exec", "model.lua", "fused"});
  };
  for (const auto& [after, level, message] :
       {std::tuple{"nonsense", "2", "TRIAGE_REPRO_AFTER=nonsense: the minifier cannot begin after 'nonsense'"},
        {"capture", "7", "TRIAGE_REPRO_LEVEL=7: the level of the minifier is 1 "},
        {"capture", "2x", "TRIAGE_REPRO_LEVEL=2x: the level of the minifier is 1 "},
        {"", "0", "TRIAGE_REPRO_LEVEL=0: the level of the minifier is 1 "}}) {
    const Ran refused = run(after, level);
    CHECK(refused.status == 2);
    CHECK(refused.out.empty());
    CHECK_MESSAGE(refused.err.find(std::string("triage exec: ") + message) == 0, refused.err);
    CHECK(refused.err.find('\n') == refused.err.size() - 1);  // once
  }
  const Ran alone = run("", "4");
  CHECK(alone.status == 0);
  CHECK(alone.err ==
        "triage: TRIAGE_REPRO_LEVEL does nothing without TRIAGE_REPRO_AFTER: set that to capture or aot\n");
}
