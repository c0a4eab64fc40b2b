// Standard output that cannot be written: no command may look as if it had succeeded.
#include <doctest/doctest.h>

#include <string>

#include "tests/cli/program.h"
#include "tests/cli/scene.h"

namespace {

const std::string program = "\"$triage\" ";

struct OutputScene : Scene {
  Ran run(const std::string& command) const { return shell(folder, program + command); }
};

constexpr const char* commands[] = {
    "run repair.lua -i z=ones:4x2",
    "run repair.lua -i z=ones:4x2 --json",
    "check repair.lua",
    "explain repair.lua -i z=ones:4x2",
    "version",
    "--version",
    "--help",
    "help run",
    "decisions /dev/null",
    "incident /dev/null",
    "exec -e 'print(1)'",
    "exec -e 'io.write(1)'",
    "exec -e 'print(1) os.exit(0)'",
};

}  // namespace

TEST_CASE("a command whose output is lost says so and fails") {
  const OutputScene scene;
  for (const std::string command : commands) {
    CAPTURE(command);
    const Ran full = scene.run(command + " > /dev/full");
    CAPTURE(full.err);
    CHECK(full.status == 1);
    CHECK(has(full.err, ": cannot write to standard output: No space left on device\n"));
    CHECK(count_of(full.err, "\n") == 1);
    const Ran closed = scene.run(command + " >&-");
    CHECK(closed.status == 1);
    CHECK(has(closed.err, ": cannot write to standard output: Bad file descriptor\n"));
  }
  CHECK(has(scene.run("run repair.lua -i z=ones:4x2 > /dev/full").err, "triage run: cannot write"));
}

TEST_CASE("where output is lost, a failure keeps its status, and a command that prints nothing succeeds") {
  const OutputScene scene;
  CHECK(scene.run("check none.lua --json > /dev/full").status == 2);
  CHECK(scene.run("exec -e 'print(1) os.exit(3)' > /dev/full").status == 3);
  CHECK(scene.run("exec -e 'local x = 1' > /dev/full").status == 0);
  CHECK(scene.run("exec -e 'local x = 1' >&-").status == 0);
}

TEST_CASE("what is printed to a closed descriptor does not go into a file of the command") {
  const OutputScene scene;
  const Ran ran = scene.run("run repair.lua -i z=ones:4x2 -o z=z.npy --decisions d.jsonl <&- >&- 2>&-");
  CHECK(ran.status == 1);
  CHECK(read_bytes(scene.folder / "z.npy").substr(1, 5) == "NUMPY");
  CHECK(has(read_bytes(scene.folder / "z.npy"), "'shape': (4, 2)"));
  CHECK(read_bytes(scene.folder / "d.jsonl").empty());
}

TEST_CASE("a reader that has enough ends the program as it ends others") {
  const OutputScene scene;
  const Ran ran = scene.run("exec -e 'for i = 1, 200000 do print(i) end' 2> err | head -1; cat err >&2");
  CHECK(ran.out == "1\n");
  CHECK(ran.err.empty());
}
