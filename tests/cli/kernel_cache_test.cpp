// Compiled kernels on disk, and hosts where the compiler is missing or fails: the program always answers.
#include "program.h"
#include "variable.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace {

namespace fs = std::filesystem;

struct Scene {
  TemporaryFolder folder;
  Variable cache{"TRIAGE_KERNEL_CACHE", folder / "kernels"};
  Scene() {
    write_bytes(folder / "repair.lua",
                "return function(z)\n  local f = flag_nan(z, 'x')\n  return fix(z * 2 + 1, f, 'x')\nend\n");
  }
  Ran run() const {
    return triage_program(folder, {"run", "repair.lua", "--input", "z=randn:8x16", "--backend", "fused"});
  }
  /// A script in the place of the compiler. Returns its path.
  std::string compiler(const std::string& name, const std::string& text) const {
    write_bytes(folder / name, "#!/bin/sh\n" + text);
    fs::permissions(folder / name, fs::perms::owner_all);
    return folder / name;
  }
  fs::path kernel() const {
    if (!fs::exists(folder / "kernels")) return {};
    for (const auto& entry : fs::directory_iterator(folder / "kernels"))
      if (entry.path().extension() == ".so") return entry.path();
    return {};
  }
};

/// Not only on its way out, nor a zombie that nobody has waited for.
bool runs(pid_t process) {
  for (int tries = 0; tries < 100; ++tries) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string id, name, state;
    if (!(file >> id >> name >> state) || state == "Z" || state == "X") return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace

TEST_CASE("a kernel is kept on disk, and a broken one is made again") {
  const Scene scene;
  CHECK(scene.run().status == 0);
  const fs::path kernel = scene.kernel();
  REQUIRE(!kernel.empty());
  const auto size = fs::file_size(kernel);
  const auto written = fs::last_write_time(kernel);
  CHECK(scene.run().status == 0);
  CHECK(fs::last_write_time(kernel) == written);  // used as it is
  write_bytes(kernel.string(), "no machine code");
  const Ran again = scene.run();
  CHECK(again.status == 0);
  CHECK(again.err.empty());
  CHECK(fs::file_size(kernel) == size);
}

TEST_CASE("a folder that others may write to holds no kernels, and it is said") {
  const Scene scene;
  fs::create_directory(scene.folder / "kernels");
  fs::permissions(scene.folder / "kernels", fs::perms::all);
  const Ran ran = scene.run();
  CHECK(ran.status == 0);
  CHECK(ran.err.find("compiled kernels are not kept for the next process") != std::string::npos);
  CHECK(scene.kernel().empty());
}

TEST_CASE("the folder of kernels is bounded: the oldest go") {
  const Scene scene;
  const fs::path kernels = scene.folder / "kernels";
  fs::create_directory(kernels);
  fs::permissions(kernels, fs::perms::owner_all);
  const auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < 600; ++i) {
    const std::string name = (kernels / (std::to_string(i) + ".so")).string();
    write_bytes(name, "old");
    write_bytes(name + ".sum", "old");
    fs::last_write_time(name, now - std::chrono::hours(1000 - i));
  }
  CHECK(scene.run().status == 0);
  size_t objects = 0, sums = 0;
  for (const auto& entry : fs::directory_iterator(kernels)) {
    objects += entry.path().extension() == ".so";
    sums += entry.path().extension() == ".sum";
  }
  CHECK(objects == 512);
  CHECK(sums == 512);
  CHECK(!fs::exists(kernels / "0.so"));
  CHECK(fs::exists(kernels / "599.so"));
}

TEST_CASE("no compiler, or one that fails or is killed: the interpreter serves, and it is said once") {
  for (const char* compiler : {"/nowhere/c++", "false"}) {
    const Scene scene;
    const Variable chosen("TRIAGE_CXX", compiler);
    const Ran ran = scene.run();
    CHECK(ran.status == 0);
    CHECK(ran.out.find("backend fused") != std::string::npos);
    CHECK(ran.err.find("no fused kernels, the interpreter serves in their place") != std::string::npos);
    CHECK(scene.kernel().empty());
  }
  const Scene killed;
  {
    const Variable chosen("TRIAGE_CXX",
                          killed.compiler("killed", "case $1 in --version) echo killed;; *) kill -9 $$;; esac\n"));
    const Ran ran = killed.run();
    CHECK(ran.status == 0);
    CHECK(ran.err.find("was ended by signal 9 (Killed)") != std::string::npos);
    CHECK(killed.kernel().empty());
  }
  const Scene scene;
  const Variable chosen("TRIAGE_CXX",
                        scene.compiler("half", "case $1 in --version) echo half a compiler;; *) exit 1;; esac\n"));
  for (int call = 0; call < 5; ++call) CHECK(scene.run().status == 0);  // it ends before it has read its input
}

TEST_CASE("a compiler that hangs is ended, with what it has started, and the interpreter serves") {
  const Variable limit("TRIAGE_CXX_TIMEOUT", "1");
  for (const char* when : {"--version) echo slow", "--help) exit"}) {
    CAPTURE(when);
    const Scene scene;
    // What it starts holds on to the pipes, as the compiler proper does where `c++` itself is killed.
    const Variable chosen(
        "TRIAGE_CXX", scene.compiler("hangs", std::string("case $1 in ") + when + ";; *) sleep 600 & echo $$ $! > " +
                                                  shell_quoted(scene.folder / "pids") + "; wait;; esac\n"));
    const Ran ran = scene.run();
    CHECK(ran.status == 0);
    CAPTURE(ran.err);
    CHECK(ran.err.find("the interpreter serves in their place: `" + (scene.folder / "hangs") +
                       "` took longer than 1 s") != std::string::npos);
    CHECK(scene.kernel().empty());
    std::istringstream pids(read_bytes(scene.folder / "pids"));
    pid_t compiler = 0, started = 0;
    REQUIRE((pids >> compiler >> started));
    CHECK(!runs(compiler));
    CHECK(!runs(started));
  }
}

TEST_CASE("what a compiler leaves running is not waited for, and ends") {
  for (const char* then : {"exec c++ \"$@\"", "echo broken; exit 1"}) {
    CAPTURE(then);
    const Scene scene;
    const Variable chosen(
        "TRIAGE_CXX",
        scene.compiler("leaves", "case $1 in --version) exec c++ --version;; esac\nsleep 600 & echo $! >> " +
                                     shell_quoted(scene.folder / "pids") + "\n" + then + "\n"));
    const Ran ran = scene.run();
    CHECK(ran.status == 0);
    CAPTURE(ran.err);
    const bool broken = then[0] == 'e' && then[1] == 'c';
    CHECK(broken == (ran.err.find("failed with exit status 1: broken") != std::string::npos));
    CHECK(broken == scene.kernel().empty());
    std::istringstream pids(read_bytes(scene.folder / "pids"));
    pid_t left = 0;
    REQUIRE((pids >> left));
    CHECK(!runs(left));
  }
}

TEST_CASE("a compiler that says nothing more and does not end is ended, too") {
  const Variable limit("TRIAGE_CXX_TIMEOUT", "1");
  const Scene scene;
  const Variable chosen(
      "TRIAGE_CXX",
      scene.compiler("silent", "case $1 in --version) echo silent;; *) exec >&- 2>&-; sleep 600;; esac\n"));
  const Ran ran = scene.run();
  CHECK(ran.status == 0);
  CHECK(ran.err.find("took longer than 1 s") != std::string::npos);
}

TEST_CASE("what a compiler makes is loaded before it is kept") {
  const Scene scene;
  {
    const Variable chosen(
        "TRIAGE_CXX", scene.compiler("garbage",
                                     "case $1 in --version) exec c++ --version;; esac\nfor word; do out=$word; done\n"
                                     "echo no machine code > \"$out\"\n"));
    const Ran ran = scene.run();
    CHECK(ran.status == 0);
    CHECK(ran.err.find("cannot load a compiled kernel") != std::string::npos);
    CHECK(scene.kernel().empty());
  }
  CHECK(scene.run().err.empty());
  CHECK(!scene.kernel().empty());
}

TEST_CASE("a program that ends while a kernel is compiled leaves no compiler and no half-written file") {
  const Scene scene;
  write_bytes(scene.folder / "ends.lua",
              "local double = triage.compile(function(z) return z * 2 + 1 end, {backend = 'fused'})\n"
              "double(torch.ones({4, 4}))\n"
              "repeat local file = io.open('pid') until file and file:read('l')\n");
  // Says that it is at work, and then is for longer than any test.
  const Variable chosen(
      "TRIAGE_CXX",
      scene.compiler("slow",
                     "case $1 in --version) echo slow;; *) for word; do out=$word; done; touch \"$out\"; echo $$ > " +
                         shell_quoted(scene.folder / "pid") + "; exec sleep 600;; esac\n"));
  CHECK(triage_program(scene.folder, {"exec", "ends.lua"}).status == 0);
  const pid_t compiler = std::stoi(read_bytes(scene.folder / "pid"));
  CHECK(::kill(compiler, SIGKILL) != 0);  // there is none
  CHECK((!fs::exists(scene.folder / "kernels") || fs::is_empty(scene.folder / "kernels")));
}
