// What is no file, no number, or no option: told with its name, and status 2.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/program.h"
#include "tests/cli/scene.h"

TEST_CASE("an empty value is refused, not taken for an option that is not given") {
  const Scene triage;
  for (const char* command :
       {"run", "explain", "bench", "export", "check", "test", "exec", "isolate", "verify", "statistics", "replay"}) {
    CAPTURE(command);
    check_message(triage({command, ""}), 2, std::string("triage ") + command, {"its value is empty"});
  }
  check_message(triage({"run", "repair.lua", "-i", "z=ones:4x2", "--decisions", ""}), 2, "triage run",
                {"--decisions: its value is empty"});
}

TEST_CASE("exec reads what can be read to an end, and refuses the rest with its name") {
  const Scene triage;
  check_message(triage({"exec", "/proc/self/mem"}), 2, "triage exec", {"cannot read \"/proc/self/mem\": "});
  check_message(triage({"exec", "/dev/zero"}), 2, "triage exec",
                {"cannot read \"/dev/zero\": it is longer than 16 MiB"});
  check_message(triage({"exec", "."}), 2, "triage exec", {"cannot read \".\": it is a folder"});
  check_message(triage({"exec", "none.lua"}), 2, "triage exec", {"cannot read \"none.lua\": there is no such file"});
  write_bytes(triage.folder / "large.lua", "--" + std::string(size_t{17} << 20, 'x') + "\n");
  check_message(triage({"exec", "large.lua"}), 2, "triage exec", {"large.lua", "16 MiB"});
  CHECK(shell(triage.folder, "echo 'print(arg[0], ...)' | \"$triage\" exec /dev/stdin a").out == "/dev/stdin\ta\n");
}

TEST_CASE("the name of a file cannot end a line of a message") {
  const Scene triage;
  const std::string name = "a\ntriage: all is fine\x1b[2J.lua", shown = "a\\ntriage: all is fine\\x1b[2J.lua";
  for (const char* command :
       {"run", "explain", "check", "test", "exec", "isolate", "verify", "statistics", "decisions", "minify", "watch"}) {
    CAPTURE(command);
    check_message(triage({command, name}), 2, std::string("triage ") + command, {shown.c_str()});
  }
  check_message(triage({"run", "repair.lua", "-i", "z=a\nb.npy"}), 2, "triage run", {"\"a\\nb.npy\""});
  check_message(triage({"replay", "a\nb.pt"}), 2, "triage replay", {"\"a\\nb.pt\""});
  write_bytes(triage.folder / "o\nk.lua", "return function(z) return z end\n");
  CHECK(triage({"check", "o\nk.lua"}).out == "o\\nk.lua: ok\n");
}

TEST_CASE("a link in a circle is no file of a folder") {
  const Scene triage;
  std::filesystem::create_symlink("loop.lua", triage.folder / "loop.lua");
  for (const char* command : {"check", "test"}) {
    const Ran ran = triage({command, "."});
    CAPTURE(ran.err);
    CHECK_FALSE(has(ran.err, "loop.lua"));
    CHECK_FALSE(has(ran.err, "symbolic"));
  }
  CHECK(triage({"check", "."}).status == 0);
}

TEST_CASE("nan is no number for an option") {
  const Scene triage;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"watch", "repair.lua", "--canary", "repair.lua", "--share", "nan"},
        {"watch", "repair.lua", "--canary", "repair.lua", "--p99-ratio", "-nan"},
        {"watch", "repair.lua", "--shadow", "repair.lua", "--tolerance", "NaN"},
        {"bench", "repair.lua", "--seconds", "nan"},
        {"minify", "x.lua", "--time-limit", "nan"}})
    check_message(triage(arguments), 2, "triage " + arguments[0], {"expected a number, got"});
}

TEST_CASE("of a misspelt option and a missing one, the misspelt one is told") {
  const Scene triage;
  check_message(triage({"report", "x", "--no-such-flag"}), 2, "triage report", {"not expected: --no-such-flag"});
  check_message(triage({"report", "x", "--outptu", "y"}), 2, "triage report", {"did you mean \"--output\"?"});
  check_message(triage({"report", "x"}), 2, "triage report", {"--output is required"});
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose shadow takes more than the limit
TEST_CASE("a generator that no memory is for is told with what it takes") {
  const Scene triage;
  const Ran ran = shell(triage.folder, "ulimit -v 25000000; \"$triage\" run repair.lua -i z=randn:100000x100000");
  check_message(ran, 2, "triage run", {"there is no memory for \"randn:100000x100000\": it takes 37.3 GiB"});
}
#endif

TEST_CASE("check --json has the error object of other commands for a file that is missing") {
  const Scene triage;
  const nlohmann::json wanted = triage({"test", "none.lua", "--json"}).json();
  const Ran ran = triage({"check", "repair.lua", "none.lua", "--json"});
  CHECK(ran.status == 2);
  const nlohmann::json json = ran.json();
  CHECK(json["error"] == wanted["error"]);
  CHECK(json["command"] == "triage check");
  CHECK(json["status"] == 2);
  CHECK(json["ok"] == false);
  CHECK(json["files"][0]["ok"] == true);
  CHECK(json["error"]["kind"] == "file");
}
