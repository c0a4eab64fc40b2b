// Compiled kernels on disk, and hosts where the compiler is missing or fails: the program always answers.
#include "tests/cli/program.h"
#include "tests/cli/unshare.h"
#include "tests/cli/variable.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct KernelCacheScene {
  TemporaryFolder folder;
  Variable cache{"TRIAGE_KERNEL_CACHE", folder / "kernels"};
  KernelCacheScene() {
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

ino_t inode(const fs::path& file) {
  struct stat status {};
  REQUIRE(::lstat(file.c_str(), &status) == 0);
  return status.st_ino;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("a kernel is kept on disk, and a broken one is made again") {
  const KernelCacheScene scene;
  CHECK(scene.run().status == 0);
  const fs::path kernel = scene.kernel();
  REQUIRE(!kernel.empty());
  const auto size = fs::file_size(kernel);
  const auto file = inode(kernel);
  CHECK(scene.run().status == 0);
  CHECK(inode(kernel) == file);  // used as it is
  write_bytes(kernel.string(), "no machine code");
  const Ran again = scene.run();
  CHECK(again.status == 0);
  CHECK(again.err.empty());
  CHECK(fs::file_size(kernel) == size);
}

TEST_CASE("whatever stands in the place of a kernel is replaced") {
  const KernelCacheScene scene;
  CHECK(scene.run().status == 0);
  const fs::path kernel = scene.kernel();
  REQUIRE(!kernel.empty());
  const auto size = fs::file_size(kernel);
  const auto replaced = [&] {
    const Ran ran = scene.run();
    CHECK(ran.status == 0);
    CHECK(ran.err.empty());
    CHECK(fs::is_regular_file(fs::symlink_status(kernel)));
    CHECK(fs::file_size(kernel) == size);
    fs::remove_all(kernel);
  };
  fs::remove(kernel);
  fs::create_directory(kernel);
  write_bytes((kernel / "x").string(), "x");
  replaced();
  write_bytes(scene.folder / "elsewhere", "not ours to write to");
  fs::create_symlink(scene.folder / "elsewhere", kernel);
  replaced();
  CHECK(read_bytes(scene.folder / "elsewhere") == "not ours to write to");
  REQUIRE(::mkfifo(kernel.c_str(), S_IRUSR | S_IWUSR) == 0);
  replaced();
}

TEST_CASE("a kernel under the name of another one's is not run") {
  const KernelCacheScene scene;
  const auto result = [&](const std::string& factor) {
    write_bytes(scene.folder / "scale.lua", "return function(z) return z * " + factor + " + 1 end\n");
    const Ran ran = triage_program(scene.folder, {"run", "scale.lua", "--input", "z=randn:8x16,seed=1", "--backend",
                                                  "fused", "--output", "out0=z.npy", "--repeat", "1"});
    CAPTURE(ran.err);
    CHECK(ran.status == 0);
    CHECK(ran.err.empty());
    return read_bytes(scene.folder / "z.npy");
  };
  const std::string expected = result("2");
  const fs::path two = scene.kernel(), kept = scene.folder / "kept";
  REQUIRE(!two.empty());
  fs::rename(scene.folder / "kernels", kept);
  CHECK(result("3") != expected);
  const fs::path three = scene.kernel();
  REQUIRE(!three.empty());
  for (const char* part : {"", ".sum"})
    if (fs::exists(three.string() + part))
      fs::copy_file(three.string() + part, (kept / two.filename()).string() + part,
                    fs::copy_options::overwrite_existing);
  fs::remove_all(scene.folder / "kernels");
  fs::rename(kept, scene.folder / "kernels");
  CHECK(result("2") == expected);
  CHECK(result("2") == expected);
}

TEST_CASE("processes with the same id, in two containers, compile one kernel without harm") {
  const std::string contained = unshare("--pid --fork", "[ $$ = 1 ]");
  if (contained.empty()) return;
  const KernelCacheScene scene;
  // Both have made their file before either goes on.
  const Variable chosen(
      "TRIAGE_CXX",
      scene.compiler("meets", "case $1 in --version) exec c++ --version;; esac\nc++ \"$@\" || exit 1\ncd " +
                                  shell_quoted(scene.folder.path().string()) +
                                  "\nmktemp made-XXXXXX > mine || exit 1\n"
                                  "tries=0\nwhile [ $(ls made-* | wc -l) -lt 2 ] && [ $tries -lt 300 ]; do "
                                  "sleep 0.1; tries=$((tries + 1)); done\n"));
  const std::string call =
      "cd " + shell_quoted(scene.folder.path().string()) + " && " + contained + " " + shell_quoted(program_path()) +
      " run repair.lua --input z=randn:8x16 --backend fused > /dev/null 2>> said; echo $? >> ended";
  CHECK(std::system(("(" + call + ") & (" + call + "); wait").c_str()) == 0);
  CHECK(read_bytes(scene.folder / "ended") == "0\n0\n");
  CHECK(read_bytes(scene.folder / "said") == "");
  const fs::path kernel = scene.kernel();
  REQUIRE(!kernel.empty());
  const auto file = inode(kernel);
  CHECK(scene.run().status == 0);
  CHECK(inode(kernel) == file);
  // The kernel, and the kind of call.
  CHECK(std::distance(fs::directory_iterator(scene.folder / "kernels"), fs::directory_iterator()) == 2);
}

/// The errors of a script that asks for two kernels, where the folder of the scene's is a file system of its own, mounted with
/// these options, on which `first` is run; nothing where the system does not let us mount any.
std::optional<std::string> errors_with_mounted(const KernelCacheScene& scene, const std::string& options,
                                               const std::string& first = "") {
  const std::string folder = scene.folder / "kernels";
  fs::create_directory(folder);
  const std::string mounted = "mount -t tmpfs -o " + options + ",mode=700 none " + shell_quoted(folder);
  const std::string apart = unshare("--mount", mounted);
  if (apart.empty()) return std::nullopt;
  write_bytes(scene.folder / "exec.lua",
              "local x = torch.ones({4, 4})\n"
              "for k = 1, 2 do\n"
              "  local f = triage.compile(function(z) return z * (k + 1) + 1 end, {backend = 'fused'})\n"
              "  f(x)\n  f:finish_compiling()\n  f(x)\nend\n");
  const std::string inside = mounted + " || exit 9" + first + "; " + shell_quoted(program_path()) + " exec exec.lua";
  CHECK(std::system(("cd " + shell_quoted(scene.folder.path().string()) + " && " + apart + " sh -c " +
                     shell_quoted(inside) + " > out 2> err")
                        .c_str()) == 0);
  return read_bytes(scene.folder / "err");
}

TEST_CASE("on a full disk kernels are compiled elsewhere, and it is said once") {
  const KernelCacheScene scene;
  for (const char* fill : {"", "; head -c 24576 /dev/zero > kernels/full"}) {
    CAPTURE(fill);
    const auto err = errors_with_mounted(scene, "size=24k", fill);
    if (!err) return;
    CAPTURE(*err);
    CHECK(count(*err, "compiled kernels are not kept for the next process") == 1);
    CHECK(count(*err, "No space left on device") == 1);
    CHECK(count(*err, "no fused kernel") == 0);
  }
}

TEST_CASE("where the folder lets no code be loaded, kernels are compiled elsewhere, and it is said once") {
  const auto err = errors_with_mounted(KernelCacheScene(), "noexec");
  if (!err) return;
  CAPTURE(*err);
  CHECK(count(*err, "compiled kernels are not kept for the next process") == 1);
  CHECK(count(*err, "cannot be loaded") == 1);
  CHECK(count(*err, "no fused kernel") == 0);
}

TEST_CASE("a limit on the size of files does not end the host") {
  const KernelCacheScene scene;
  const std::string call = "ulimit -f 10; " + shell_quoted(program_path()) +
                           " run repair.lua --input z=randn:8x16 --backend fused > out 2> err";
  CHECK(std::system(("cd " + shell_quoted(scene.folder.path().string()) + " && sh -c " + shell_quoted(call)).c_str()) ==
        0);
}

TEST_CASE("a time limit that is none is an error that says what it should be") {
  for (const char* wrong : {"abc", "-1", "0", "5 minutes", "nan"}) {
    CAPTURE(wrong);
    const KernelCacheScene scene;
    const Variable limit("TRIAGE_CXX_TIMEOUT", wrong);
    const Ran ran = scene.run();
    CHECK(ran.status == 0);
    CHECK(count(ran.err, "TRIAGE_CXX_TIMEOUT is \"" + std::string(wrong) + "\"; it is a number of seconds above 0") ==
          1);
  }
}

TEST_CASE("a folder that others may write to holds no kernels, and it is said") {
  const KernelCacheScene scene;
  fs::create_directory(scene.folder / "kernels");
  fs::permissions(scene.folder / "kernels", fs::perms::all);
  const Ran ran = scene.run();
  CHECK(ran.status == 0);
  CHECK(ran.err.find("compiled kernels are not kept for the next process") != std::string::npos);
  CHECK(scene.kernel().empty());
}

/// The name of a kernel, as its text's hash gives it.
std::string kernel_name(int number) { return fmt::format("{:032x}.so", number); }

/// Kernels of the folder that were used long ago, number 0 before number 1.
void fill(const fs::path& folder, int files, uintmax_t bytes) {
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  const auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < files; ++i) {
    const std::string name = (folder / kernel_name(i)).string();
    write_bytes(name, "old");
    fs::resize_file(name, bytes);
    fs::last_write_time(name, now - std::chrono::hours(1000 - i));
  }
}

TEST_CASE("the folder of kernels is bounded: what was not used for longest goes") {
  struct Case {
    int files;
    uintmax_t bytes;
    std::vector<int> gone, kept;
  };
  for (const Case& now : {Case{600, 3, {0, 88}, {89, 599}}, Case{3, 60u << 20, {0}, {1, 2}}}) {
    const KernelCacheScene scene;
    const fs::path kernels = scene.folder / "kernels";
    fill(kernels, now.files, now.bytes);
    CHECK(scene.run().status == 0);
    for (const int i : now.gone) CHECK(!fs::exists(kernels / kernel_name(i)));
    for (const int i : now.kept) CHECK(fs::exists(kernels / kernel_name(i)));
    CHECK(!scene.kernel().empty());
  }
}

TEST_CASE("what is not triage's own stays in the folder, however old and large") {
  const KernelCacheScene scene;
  const fs::path kernels = scene.folder / "kernels";
  fill(kernels, 600, 3);
  fs::create_directory(kernels / "build.tmp");
  write_bytes(kernels / "build.tmp" / "data", "precious");
  const std::vector<std::string> foreign = {"libc.so", "0.so", "notes.sum", "0123456789abcdef0123456789abcdeg.so"};
  for (const std::string& name : foreign) {
    write_bytes(kernels / name, "mine");
    fs::resize_file(kernels / name, 60u << 20);
    fs::last_write_time(kernels / name, fs::file_time_type::clock::now() - std::chrono::hours(5000));
  }
  fs::last_write_time(kernels / "build.tmp", fs::file_time_type::clock::now() - std::chrono::hours(5000));
  CHECK(scene.run().status == 0);
  for (const std::string& name : foreign) CHECK(fs::exists(kernels / name));
  CHECK(read_bytes(kernels / "build.tmp" / "data") == "precious");
  CHECK(!fs::exists(kernels / kernel_name(0)));
}

TEST_CASE("a kernel that is used stays") {
  const KernelCacheScene scene;
  CHECK(scene.run().status == 0);
  const fs::path used = scene.kernel(), kernels = scene.folder / "kernels";
  REQUIRE(!used.empty());
  fill(kernels, 511, 3);
  fs::last_write_time(used, fs::file_time_type::clock::now() - std::chrono::hours(2000));
  CHECK(scene.run().status == 0);
  CHECK(fs::last_write_time(used) > fs::file_time_type::clock::now() - std::chrono::hours(1));
  write_bytes(scene.folder / "repair.lua", "return function(z) return z * 3 - 1 end\n");
  CHECK(scene.run().status == 0);
  CHECK(fs::exists(used));
  CHECK(!fs::exists(kernels / kernel_name(0)));
}

TEST_CASE("what processes that were killed have left in the folder goes after an hour") {
  const KernelCacheScene scene;
  const fs::path kernels = scene.folder / "kernels";
  fill(kernels, 0, 0);
  const auto now = fs::file_time_type::clock::now();
  for (const char* name : {"triage-making-abcdef", "triage-making-ghijkl"}) {
    fs::create_directory(kernels / name);
    write_bytes((kernels / name / "kernel.so").string(), "half");
  }
  fs::last_write_time(kernels / "triage-making-abcdef", now - std::chrono::hours(2));
  CHECK(scene.run().status == 0);
  CHECK(!fs::exists(kernels / "triage-making-abcdef"));
  CHECK(fs::exists(kernels / "triage-making-ghijkl"));  // a process may be at it
}

TEST_CASE("each kernel that the compiler fails for is told, once for one reason, with the name of its graph") {
  const KernelCacheScene scene;
  const Variable chosen("TRIAGE_CXX",
                        scene.compiler("picky",
                                       "case $1 in --version) echo picky; exit;; esac\n"
                                       "for word; do out=$word; done; echo \"$out: I do not like it\"; exit 1\n"));
  const Ran run = scene.run();
  CHECK(run.status == 0);
  CAPTURE(run.err);
  CHECK(count(run.err, "no fused kernel for a part of \"repair\" (kernel ") == 1);
  CHECK(run.err.find("failed with exit status 1: kernel.so: I do not like it") != std::string::npos);
  write_bytes(scene.folder / "exec.lua",
              "local x = torch.ones({4, 4})\n"
              "for try = 1, 3 do\n"
              "  for k, name in ipairs({'first', 'second\\n[error]'}) do\n"
              "    local f = triage.compile(function(z) return z * (k + 1) + 1 end, {backend = 'fused', name = name})\n"
              "    f(x)\n    f:finish_compiling()\n    assert(f(x):equal(x * (k + 1) + 1))\n"
              "  end\nend\n");
  const Ran exec = triage_program(scene.folder, {"exec", "exec.lua"});
  CAPTURE(exec.err);
  CHECK(exec.status == 0);
  CHECK(count(exec.err, "no fused kernel for a part of \"first\"") == 1);
  CHECK(count(exec.err, "no fused kernel for a part of \"second") == 1);
}

TEST_CASE("no compiler, or one that fails or is killed: tapes run, and it is said once") {
  for (const char* compiler : {"/nowhere/c++", "false"}) {
    const KernelCacheScene scene;
    const Variable chosen("TRIAGE_CXX", compiler);
    const Ran ran = scene.run();
    CHECK(ran.status == 0);
    CHECK(ran.out.find("backend fused") != std::string::npos);
    CHECK(ran.err.find("no fused kernels, tapes run in their place") != std::string::npos);
    CHECK(scene.kernel().empty());
  }
  const KernelCacheScene killed;
  {
    const Variable chosen("TRIAGE_CXX",
                          killed.compiler("killed", "case $1 in --version) echo killed;; *) kill -9 $$;; esac\n"));
    const Ran ran = killed.run();
    CHECK(ran.status == 0);
    CHECK(ran.err.find("was ended by signal 9 (Killed)") != std::string::npos);
    CHECK(killed.kernel().empty());
  }
  const KernelCacheScene scene;
  const Variable chosen("TRIAGE_CXX",
                        scene.compiler("half", "case $1 in --version) echo half a compiler;; *) exit 1;; esac\n"));
  for (int call = 0; call < 5; ++call) CHECK(scene.run().status == 0);  // it ends before it has read its input
}

TEST_CASE("a set of instructions is chosen by its name; what is none is said once, and the best is taken") {
  const Variable none("TRIAGE_CXX", "false");
  for (const char* set : {"baseline", ""}) {
    const KernelCacheScene scene;
    const Variable chosen("TRIAGE_INSTRUCTION_SET", set);
    const Ran ran = scene.run();
    CHECK(ran.status == 0);
    CHECK(ran.err.find("TRIAGE_INSTRUCTION_SET") == std::string::npos);
  }
  const KernelCacheScene scene;
  const Variable chosen("TRIAGE_INSTRUCTION_SET", "avx9");
  const Ran ran = scene.run();
  CHECK(ran.status == 0);
  CHECK(count(ran.err, "TRIAGE_INSTRUCTION_SET is \"avx9\"; this processor has ") == 1);
}

TEST_CASE("a compiler that hangs is ended, with what it has started, and tapes run") {
  const Variable limit("TRIAGE_CXX_TIMEOUT", "1");
  for (const char* when : {"--version) echo slow", "--help) exit"}) {
    CAPTURE(when);
    const KernelCacheScene scene;
    // What it starts holds on to the pipes, as the compiler proper does where `c++` itself is killed.
    const Variable chosen(
        "TRIAGE_CXX", scene.compiler("hangs", std::string("case $1 in ") + when + ";; *) sleep 600 & echo $$ $! > " +
                                                  shell_quoted(scene.folder / "pids") + "; wait;; esac\n"));
    const Ran ran = scene.run();
    CHECK(ran.status == 0);
    CAPTURE(ran.err);
    CHECK(ran.err.find(" place: `" + (scene.folder / "hangs") + "` took longer than 1 s") != std::string::npos);
    CHECK(scene.kernel().empty());
    std::istringstream pids(read_bytes(scene.folder / "pids"));
    pid_t compiler = 0, started = 0;
    REQUIRE((pids >> compiler >> started));
    CHECK(!runs(compiler));
    CHECK(!runs(started));
  }
}

TEST_CASE("what a compiler that is ended has made on its way is gone with it") {
  const Variable limit("TRIAGE_CXX_TIMEOUT", "1");
  const KernelCacheScene scene;
  fs::create_directory(scene.folder / "temporary");
  const Variable temporary("TMPDIR", scene.folder / "temporary");
  const Variable chosen(
      "TRIAGE_CXX",
      scene.compiler("hangs", "case $1 in --version) echo slow;; *) echo half > $TMPDIR/ccAbCdEf.s; echo $TMPDIR > " +
                                  shell_quoted(scene.folder / "where") + "; sleep 600;; esac\n"));
  CHECK(scene.run().status == 0);
  CHECK(read_bytes(scene.folder / "where").find("triage-making-") != std::string::npos);
  CHECK(fs::is_empty(scene.folder / "temporary"));
  for (const auto& entry : fs::directory_iterator(scene.folder / "kernels"))
    CHECK(entry.path().extension() == ".calls");  // the kind of call, which was captured
}

TEST_CASE("what a compiler leaves running is not waited for, and ends") {
  for (const char* then : {"exec c++ \"$@\"", "echo broken; exit 1"}) {
    CAPTURE(then);
    const KernelCacheScene scene;
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
  const KernelCacheScene scene;
  const Variable chosen(
      "TRIAGE_CXX",
      scene.compiler("silent", "case $1 in --version) echo silent;; *) exec >&- 2>&-; sleep 600;; esac\n"));
  const Ran ran = scene.run();
  CHECK(ran.status == 0);
  CHECK(ran.err.find("took longer than 1 s") != std::string::npos);
}

TEST_CASE("what a compiler makes is loaded before it is kept") {
  const KernelCacheScene scene;
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
  const KernelCacheScene scene;
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
