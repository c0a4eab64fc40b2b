// Logs as the environment asks the program for them (TRIAGE_LOGS, TRIAGE_LOG_FILE, TRIAGE_DEBUG_FUNCTION).
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tests/cli/program.h"
#include "tests/cli/variable.h"

namespace {

constexpr const char* halving_policy = R"(return policy {
  name = "halved",
  run = function(z)
    if z:size(0) == 4 then z = z * 2 end
    return z / 2
  end,
}
)";

struct LogsScene {
  TemporaryFolder folder;
  LogsScene() {
    write_bytes(folder / "halved.lua", halving_policy);
    write_bytes(folder / "script.lua",
                "triage.compile(function(x) print('in') return x + 1 end, {name = 'f'})(torch.ones({2}))\n");
  }
  Ran run() const { return triage_program(folder, {"run", "halved.lua", "-i", "z=ones:4x2"}); }
  Ran exec() const { return triage_program(folder, {"exec", "script.lua"}); }
};

}  // namespace

TEST_CASE("D01: TRIAGE_LOGS=help prints the table of logs") {
  const LogsScene scene;
  const Variable logs("TRIAGE_LOGS", "help");
  const Ran help = scene.run();
  CHECK(help.status == 0);
  CHECK(help.err.empty());
  for (const char* name : {"capture", "graph_breaks", "recompiles", "guards", "graph", "graph_code", "aot_graphs",
                           "fusion", "output_code", "kernels", "reload", "all", "+capture", "info"})
    CHECK_MESSAGE(has(help.out, std::string("  ") + name), name);
}

TEST_CASE("D01: a name in TRIAGE_LOGS that nobody knows is an error with a guess") {
  const LogsScene scene;
  for (const auto& [word, guess] :
       {std::pair("graph,fussion", "fusion"), {"+grahp", "graph"}, {"-recompile", "recompiles"}}) {
    const Variable logs("TRIAGE_LOGS", word);
    const Ran refused = scene.run();
    CHECK(refused.status == 2);
    CHECK(refused.out.empty());
    CHECK(has(refused.err, "triage run: TRIAGE_LOGS: there is no log '"));
    CHECK(has(refused.err, std::string("did you mean '") + guess + "'?"));
  }
}

TEST_CASE("D01: a name that is like none, and levels in capitals") {
  const LogsScene scene;
  {
    const Variable logs("TRIAGE_LOGS", "dynamo");
    CHECK(has(scene.run().err, "there is no log 'dynamo'; there are: capture, graph_breaks"));
  }
  const Variable logs("TRIAGE_LOGS", "WARNING,+Graph");
  const Ran ran = scene.run();
  CHECK(ran.status == 0);
  CHECK(has(ran.err, "[graph] graph `halved`"));
}

TEST_CASE("D01: no text of a script looks like a record") {
  const LogsScene scene;
  write_bytes(scene.folder / "script.lua", R"(
local f = triage.compile(function(x) return x:tanh() end,
  {name = "x\ntriage: [kernels] all is fine", backend = function() error("no\ntriage: [kernels] all is fine") end})
f(torch.ones({2}))
local g = triage.compile(function(x, s) return x * #s end, {name = "g"})
for i = 1, 12 do g(torch.ones({2}), "\ntriage: [kernels] all is fine" .. i) end
)");
  const Variable logs("TRIAGE_LOGS", "all");
  const Ran ran = scene.exec();
  CHECK(ran.status == 0);
  CHECK(has(ran.err + ran.out, "all is fine"));
  CHECK_FALSE(has("\n" + ran.err, "\ntriage: [kernels] all is fine"));
  CHECK_FALSE(has("\n" + ran.out, "\ntriage: [kernels] all is fine"));
}

TEST_CASE("D01: artefacts of a run go to standard error, and leave standard output as it is") {
  const LogsScene scene;
  const std::string plain = scene.run().out;
  const Variable logs("TRIAGE_LOGS", "graph,guards,+capture");
  const Ran logged = scene.run();
  CHECK(logged.status == 0);
  CHECK(has(logged.err, "triage: [capture] Step 1: capture of 'halved' (halved.lua:3) begins\n"));
  CHECK(has(logged.err, "triage: [capture] halved.lua:5: %"));
  CHECK(has(logged.err, "aten::div"));
  CHECK(has(logged.err, "\n    return z / 2\n"));
  CHECK(has(logged.err, "triage: [graph] graph `halved`"));
  CHECK(has(logged.err, "z: size(0) == 4 (read by the script at halved.lua:4)\n") !=
        has(logged.err, "z:size(0) == 4 (a condition of the script at halved.lua:4)\n"));
  CHECK(std::count(plain.begin(), plain.end(), '\n') == std::count(logged.out.begin(), logged.out.end(), '\n'));
}

TEST_CASE("D02: TRIAGE_LOG_FILE has every record, and standard error the warnings alone") {
  const LogsScene scene;
  const Variable logs("TRIAGE_LOGS", "graph,fusion"), file("TRIAGE_LOG_FILE", "triage.log");
  const Ran ran = scene.exec();
  CHECK(ran.status == 0);
  CHECK_FALSE(has(ran.err, "[graph]"));
  CHECK(has(ran.out + ran.err, "graph break: "));
  const std::string once = read_bytes(scene.folder / "triage.log");
  CHECK(has(once, " [info] [graph] graph `f_segment_1`, 1 operations\n    graph f_segment_1("));
  CHECK(has(once, " [warn] 'f' has a graph break"));
  CHECK(has(once, "[fusion] fusion groups of graph `f_segment_1`"));
  scene.exec();
  CHECK(count_of(read_bytes(scene.folder / "triage.log"), "[graph]") == 2 * count_of(once, "[graph]"));
}

TEST_CASE("D02: a log file that cannot be opened, or takes no more, is told of once, and the run goes on") {
  const LogsScene scene;
  const Variable logs("TRIAGE_LOGS", "all");
  for (const auto& [path, reason] :
       {std::pair("no/such/folder/x.log", "No such file or directory"), {"/dev/full", "No space left"}}) {
    const Variable file("TRIAGE_LOG_FILE", path);
    const Ran ran = scene.run();
    CHECK(ran.status == 0);
    CHECK(has(ran.err, reason));
    CHECK(count_of(ran.err, "cannot write the log file") == 1);
    CHECK(has(ran.err, "[graph]"));  // where else they would be
  }
}

TEST_CASE("D11: TRIAGE_DEBUG_FUNCTION names the functions and policies that are captured") {
  const LogsScene scene;
  const Variable logs("TRIAGE_LOGS", "graph");
  for (const auto& [name, captured] :
       {std::pair("halved", true), {"h*", true}, {"halved.lua:3", true}, {"other", false}}) {
    const Variable only("TRIAGE_DEBUG_FUNCTION", name);
    const Ran ran = scene.run();
    CHECK(ran.status == 0);
    CHECK(has(ran.err, "graph `halved`") == captured);
  }
}

TEST_CASE("D11: a name that no function has is told at the end, with those that there were") {
  const LogsScene scene;
  const std::string told = "no function or policy that ran has the name";
  {
    const Variable only("TRIAGE_DEBUG_FUNCTION", "othr");
    const Ran ran = scene.run();
    CHECK(ran.status == 0);
    CHECK(count_of(ran.err, told) == 1);
    CHECK(has(ran.err,
              told + " 'othr' (TRIAGE_DEBUG_FUNCTION), so none was captured; there were: halved (halved.lua:3)"));
  }
  const Variable only("TRIAGE_DEBUG_FUNCTION", "halved");
  CHECK_FALSE(has(scene.run().err, told));
}
