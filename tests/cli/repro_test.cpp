// TRIAGE_REPRO_AFTER: a graph that its backend fails on is written as a program and minified, and the run goes on.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "program.h"
#include "variable.h"

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

/// A run of it, and what it has left for the minifier.
struct Repro {
  TemporaryFolder folder;
  Ran ran;
  std::vector<fs::path> found;

  Repro(const std::string& backend, const std::string& level) {
    write_bytes(folder / "model.lua", five_layers);
    const Variable after("TRIAGE_REPRO_AFTER", "capture"), at("TRIAGE_REPRO_LEVEL", level.c_str());
    ran = triage_program(folder, {"exec", "model.lua", backend});
    CAPTURE(ran.err);
    CHECK(ran.status == 0);
    CHECK(ran.out == "200\n");
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder / "triage_repro", none)) found.push_back(entry.path());
  }

  /// The repro, in a process of its own, fails as the whole graph does.
  void check_fails(const std::string& message) const {
    REQUIRE(found.size() == 1);
    const fs::path file = found[0] / "repro.lua";
    CHECK(ran.err.find("`triage exec " + file.string() + "`") != std::string::npos);
    const Ran alone = triage_program(folder, {"exec", file.string()});
    CHECK(alone.status == 1);
    CHECK_MESSAGE(alone.err.find(message) != std::string::npos, alone.err);
    const std::string text = read_bytes(file.string());
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

TEST_CASE("D05: a word that is no stage, and a level that there is not, are a warning; the run goes on") {
  const TemporaryFolder folder;
  write_bytes(folder / "model.lua", five_layers);
  for (const auto& [after, level] : {std::pair{"nonsense", "2"}, {"capture", "7"}, {"capture", "2x"}}) {
    const Variable stage("TRIAGE_REPRO_AFTER", after), at("TRIAGE_REPRO_LEVEL", level);
    const Ran ran = triage_program(folder, {"exec", "model.lua", "fused"});
    CHECK(ran.status == 0);
    CHECK(ran.err.find("nothing is written for the minifier") != std::string::npos);
  }
}
