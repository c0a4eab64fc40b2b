// What the program makes of files that are none, or hold anything: a message, no hang, and no file half written.
#include "tests/cli/program.h"
#include "tests/cli/variable.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

/// Text for a person: what it says moves no cursor.
bool is_plain(const std::string& text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') return false;
  return text.find('\x7f') == std::string::npos;
}

struct HostileScene {
  TemporaryFolder folder;
  std::string file(const std::string& name, const std::string& text) { return write_bytes(folder / name, text); }
  Ran operator()(const std::vector<std::string>& arguments) const {
    const Ran ran = triage_program(folder, arguments);
    CHECK(is_plain(ran.out));
    CHECK(is_plain(ran.err));
    return ran;
  }
};

}  // namespace

TEST_CASE("files that are no policies are refused by every command") {
  HostileScene scene;
  fs::create_directory(scene.folder / "folder.lua");
  ::mkfifo((scene.folder / "fifo.lua").c_str(), 0666);
  fs::create_symlink("loop.lua", scene.folder / "loop.lua");
  fs::create_symlink("/dev/zero", scene.folder / "zero.lua");
  scene.file("sparse.lua", "return");
  fs::resize_file(scene.folder / "sparse.lua", uint64_t{10} << 30);
  scene.file("binary.lua", std::string("\x7f"
                                       "ELF\0\1\2\x1b[2J\xff\r\n\0return",
                                       20));
  scene.file("empty.lua", "");
  scene.file("compiled.lua", "\x1bLua\x54");
  for (const std::string name : {"folder.lua", "fifo.lua", "loop.lua", "zero.lua", "sparse.lua", "binary.lua",
                                 "empty.lua", "compiled.lua", "missing.lua"}) {
    CAPTURE(name);
    for (const std::vector<std::string>& command :
         std::vector<std::vector<std::string>>{{"run", name, "--input", "z=randn:2x2"},
                                               {"check", name},
                                               {"test", name},
                                               {"bench", name, "--input", "z=randn:2x2"},
                                               {"explain", name, "--input", "z=randn:2x2"},
                                               {"export", name, "--input", "z=randn:2x2"}}) {
      if (name == "folder.lua" && (command[0] == "check" || command[0] == "test")) continue;  // all policies in it
      CAPTURE(command[0]);
      const Ran ran = scene(command);
      CAPTURE(ran.err);
      CAPTURE(ran.out);
      if (command[0] == "check" && name == "empty.lua") continue;  // a chunk without faults
      CHECK((ran.status == 1 || ran.status == 2));
      CHECK((ran.err + ran.out).find(name) != std::string::npos);
    }
  }
}

TEST_CASE("inputs and params that are no such are refused") {
  HostileScene scene;
  scene.file("p.lua", "return policy { inputs = {'z'}, params = { k = 1 }, run = function(z, p) return z * p.k end }");
  ::mkfifo((scene.folder / "fifo.npy").c_str(), 0666);
  scene.file("sparse.npy", "x");
  fs::resize_file(scene.folder / "sparse.npy", uint64_t{10} << 30);
  for (const std::string input :
       {"fifo.npy", "sparse.npy", "missing.npy", "randn:9223372036854775807x2",
        "randn:0x9223372036854775807x9223372036854775807", "randn:2x", "randn:-1", "arange:4294967296x4294967296",
        "randn:2x2,seed=1e9", "randn:2,nan=99999999999999999999",
        "randn:2,nan=9223372036854775807,inf=9223372036854775807", "zeros:2,dtype=\x1b[2J"}) {
    CAPTURE(input);
    const Ran ran = scene({"run", "p.lua", "--input", "z=" + input});
    CAPTURE(ran.err);
    CHECK((ran.status == 1 || ran.status == 2));
    CHECK(!ran.err.empty());
  }
  for (const std::string param : {"k=", "k=x", "k=1e999", "k=99999999999999999999999", "k=\x1b[2J", "nope=1", "=1"}) {
    CAPTURE(param);
    const Ran ran = scene({"run", "p.lua", "--input", "z=randn:2x2", "--param", param});
    CHECK(ran.status == 2);
  }
}

TEST_CASE("names, errors and prints with control characters do not reach the terminal") {
  HostileScene scene;
  const std::string name = "a\x1b[2J\rb.lua";
  scene.file(name,
             "print('p\\27[31m')\nreturn function(z) error('x\\n[date] FORGED\\27]0;title\\7\\194\\155 \\255', 0) end");
  const Ran ran = scene({"run", name, "--input", "z=randn:2x2"});
  CHECK(ran.status == 1);
  CHECK(ran.err.find("\\x1b]0;title\\x07\\u{9b} \\xff") != std::string::npos);
  CHECK(ran.out.find("p\\x1b[31m") != std::string::npos);
  scene.file(name, "return function(z) local f = flag_nan(z / 0, 'l\\27[2J') return z, f end");
  CHECK(scene({"run", name, "--input", "z=zeros:2x2"}).status == 0);
  const Ran json = scene({"run", name, "--input", "z=zeros:2x2", "--json"});
  CHECK(json.status == 0);
  CHECK(json.json()["policy"].is_string());
  for (const char c : json.out) CHECK(static_cast<unsigned char>(c) < 0x7f);
  scene.file("exec.lua", "error('\\27[2J', 0)");
  CHECK(scene({"exec", "exec.lua"}).err.find("\\x1b[2J") != std::string::npos);
}

TEST_CASE("a report is written whole or not at all") {
  HostileScene scene;
  scene.file("p.lua", "return function(z) return z end");
  scene.file("report.xml", "before");
  fs::create_directory(scene.folder / "taken.xml");
  CHECK(scene({"test", "p.lua", "--junit", "taken.xml"}).status != 0);
  CHECK(scene({"test", "p.lua", "--junit", "nowhere/report.xml"}).status != 0);
  scene({"test", "p.lua", "--junit", "report.xml"});
  CHECK(read_bytes(scene.folder / "report.xml").find("</testsuites>") != std::string::npos);
  for (const std::string& left : scene.folder.names()) CHECK(left.find(".tmp") == std::string::npos);
}
