// `triage cache`: bundles of kernels and kinds of calls, and the folder that they come from and go to.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <triage/version.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>

#include "tests/cli/policy_folder.h"
#include "tests/cli/unshare.h"
#include "tests/cli/variable.h"

namespace {

namespace fs = std::filesystem;

constexpr const char* cached_policy =
    "return function(z) local f = flag_nan(z, 'z') return fix(z * 3 + 1, f, 'z') end\n";

/// A folder with a policy, and a cache folder in it.
struct CacheScene {
  PolicyFolder folder{cached_policy};
  Variable cache{"TRIAGE_KERNEL_CACHE", folder.folder / "cache"};
  Ran operator()(const std::vector<std::string>& arguments) const { return folder(arguments); }
  std::string path(const std::string& name) const { return folder.folder / name; }
  /// As a process that compiles, or finds what is compiled, and logs where kernels come from.
  Ran run(const std::string& compiler = "wait", const std::string& input = "z=randn:32x512,nan=3") const {
    const Variable logs("TRIAGE_LOGS", "kernels,capture");
    const Ran ran = folder({"run", "repair.lua", "--input", input, "--compiler", compiler, "--json"});
    CAPTURE(ran.err);
    CHECK(ran.status == 0);
    return ran;
  }
  void save(const std::string& file = "warm.bundle") const {
    run();
    const Ran saved = folder({"cache", "save", file});
    CAPTURE(saved.err);
    REQUIRE(saved.status == 0);
  }
};

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// The checksum of the last line, which the runtime writes: for files that lie and are whole.
std::string hash_of(const std::string& bytes) {
  uint64_t a = 0xCBF29CE484222325u, b = 0x84222325CBF29CE4u;
  for (const char c : bytes) {
    a = (a ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    b = (b ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    b ^= a >> 29;
  }
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(a),
                static_cast<unsigned long long>(b));
  return text;
}

/// A bundle with another text in the place of one in its manifest, sealed again.
std::string forged(const std::string& bundle, const std::string& pattern, const std::string& with) {
  const std::string mark = "triage cache bundle ";
  const size_t last = bundle.rfind(mark);
  const size_t length = std::stoul(bundle.substr(last + mark.size(), 20));
  std::string text = bundle.substr(last - length, length);
  const std::string changed = std::regex_replace(text, std::regex(pattern), with);
  CHECK(changed != text);
  char size[21];
  std::snprintf(size, sizeof(size), "%020zu", changed.size());
  const std::string bytes = bundle.substr(0, last - length) + changed + mark + size + " ";
  return bytes + hash_of(bytes) + "\n";
}

}  // namespace

TEST_CASE("N01: a bundle makes the next process warm: in the cache folder, where there is a compiler or none") {
  const CacheScene scene;
  scene.save();
  const Ran shown = scene({"cache", "show", "warm.bundle", "--json"});
  CHECK(shown.json()["kernels"].size() == 1);
  CHECK(shown.json()["calls"].size() == 1);
  CHECK(shown.json()["calls"][0]["inputs"][0] == "f32[32, 512]");
  CHECK(shown.json()["triage"] == TRIAGE_VERSION);
  CHECK(shown.json()["usable"] == true);

  const Variable fresh("TRIAGE_KERNEL_CACHE", scene.path("fresh"));
  const Ran loaded = scene({"cache", "load", "warm.bundle"});
  CHECK(loaded.status == 0);
  CHECK(has(loaded.out, "1 kernel, 1 kind of call of 1 policy"));
  CHECK(has(scene.run("background").err, "from a bundle, in the cache"));
  const Variable none("TRIAGE_CXX", "/nowhere/c++");
  const Ran without_compiler = scene.run("background");
  CHECK(has(without_compiler.err, "from a bundle, in the cache"));
  CHECK(without_compiler.json()["fused_loops"]["kernels"] == 1);
  CHECK(!has(without_compiler.err, "/nowhere"));
  // Not where the folder is not to be used; but a host may name the bundle.
  CHECK(scene.run("off").json()["fused_loops"]["kernels"] == 0);
  const Ran named = scene(
      {"run", "repair.lua", "--input", "z=randn:8x512", "--compiler", "off", "--kernels", "warm.bundle", "--json"});
  CHECK(named.json()["fused_loops"]["kernels"] == 1);
}

TEST_CASE("N01: what a process did is captured ahead of calls only where a bundle was loaded") {
  const CacheScene scene;
  const auto captures = [](const Ran& ran) {
    size_t count = 0;
    for (size_t at = 0; (at = ran.err.find("Step 1: capture", at)) != std::string::npos; ++at) ++count;
    return count / 2;  // it begins and ends
  };
  scene.save();
  CHECK(captures(scene.run("wait", "z=randn:2x3x64")) == 1);  // another kind: the first is not captured beside it
  REQUIRE(scene({"cache", "load", "warm.bundle"}).status == 0);
  CHECK(captures(scene.run("wait", "z=randn:2x3x64")) == 2);
}

TEST_CASE("N01: the cache is shown, saved with what bundles brought, and cleared") {
  const CacheScene scene;
  scene.save();
  scene.run("wait", "z=randn:4x64");
  const nlohmann::json shown = scene({"cache", "--json"}).json();
  CHECK(shown["folder"] == scene.path("cache"));
  CHECK(shown["kernels"].get<size_t>() >= 1);
  CHECK(shown["calls"].size() == 2);
  CHECK(shown["bytes"].get<size_t>() > 1000);
  {
    const Variable fresh("TRIAGE_KERNEL_CACHE", scene.path("fresh"));
    REQUIRE(scene({"cache", "load", "warm.bundle"}).status == 0);
    REQUIRE(scene({"cache", "save", "again.bundle"}).status == 0);
    CHECK(scene({"cache", "show", "again.bundle", "--json"}).json()["calls"] ==
          scene({"cache", "show", "warm.bundle", "--json"}).json()["calls"]);
  }
  write_bytes(scene.path("cache") + "/mine.txt", "not of the runtime");
  const Ran cleared = scene({"cache", "clear"});
  CHECK(cleared.status == 0);
  CHECK(has(cleared.out, "2 kinds of calls of 1 policy"));
  CHECK(names_in(scene.path("cache")) == std::vector<std::string>{"mine.txt"});
  CHECK(scene({"cache", "--json"}).json()["kernels"] == 0);
  const Ran nothing = scene({"cache", "save", "none.bundle"});
  CHECK(nothing.status == 1);
  CHECK(has(nothing.err, "there is nothing to save"));
  CHECK(!fs::exists(scene.path("none.bundle")));
}

TEST_CASE("N01: a bundle that is damaged, forged or for another machine is refused, and nothing is changed") {
  const CacheScene scene;
  scene.save();
  const std::string whole = read_bytes(scene.path("warm.bundle"));
  const Variable fresh("TRIAGE_KERNEL_CACHE", scene.path("fresh"));
  const auto message_of = [&](const std::string& bytes) {
    write_bytes(scene.path("other.bundle"), bytes);
    const Ran loaded = scene({"cache", "load", "other.bundle"});
    CHECK(loaded.status == 2);
    CHECK(loaded.out.empty());
    CHECK(has(loaded.err, "\"other.bundle\""));
    CHECK(std::count(loaded.err.begin(), loaded.err.end(), '\n') == 1);
    CHECK(names_in(scene.path("fresh")).empty());
    const Ran named = scene({"run", "repair.lua", "--input", "z=randn:8x512", "--kernels", "other.bundle", "--json"});
    CHECK(named.status == 0);  // the usual way serves
    CHECK(has(named.err, "other.bundle"));
    fs::remove_all(scene.path("fresh"));
    return loaded.err;
  };
  for (const size_t size : {size_t{0}, size_t{40}, whole.size() / 2, whole.size() - 1})
    CHECK(has(message_of(whole.substr(0, size)), "its end is missing"));
  std::string damaged = whole;
  damaged[whole.size() / 2] = static_cast<char>(damaged[whole.size() / 2] ^ 1);
  CHECK(has(message_of(damaged), "changed or damaged"));
  CHECK(has(message_of(read_bytes(program_path()).substr(0, 4096)), "no file that `triage cache save` has made"));

  CHECK(has(message_of(forged(whole, "\ntriage [^\n]*", "\ntriage 0.0.1")), "triage 0.0.1 has built it"));
  CHECK(has(message_of(forged(whole, "\nabi [^\n]*", "\nabi 77")), "way 77"));
  CHECK(has(message_of(forged(whole, "\nlibtorch [^\n]*", "\nlibtorch 9.9")), "saved with LibTorch 9.9"));
  CHECK(has(message_of(forged(whole, "\narchitecture [^\n]*", "\narchitecture pdp11")), "they are for pdp11"));
  CHECK(has(message_of(forged(whole, "\nfeatures ", "\nfeatures amx99 ")), "this processor lacks amx99"));
  for (const char* const sizes : {"size 1 1", "size 99999999999999 1", "size 18446744073709551615 18446744073709551615",
                                  "size -1 5", "size x", "size 0 0\nsize 0 0", ""})
    CHECK(has(message_of(forged(whole, "size [^\n]*", sizes)), "the sizes that it states"));
  CHECK(has(message_of(forged(whole, "\nkernel [^\n]*", "\nkernel 0123456789abcdef0123456789abcdef")),
            "another hash than it states"));
}

TEST_CASE("N01: names in a bundle never become paths, and machine code that cannot be loaded is replaced") {
  const CacheScene scene;
  scene.save();
  const std::string whole = read_bytes(scene.path("warm.bundle"));
  const Variable fresh("TRIAGE_KERNEL_CACHE", scene.path("fresh"));
  write_bytes(scene.path("other.bundle"), forged(whole, "call [^ ]*", "call ../../../../escaped"));
  CHECK(scene({"cache", "load", "other.bundle"}).status == 0);
  for (const std::string& name : names_in(scene.path("fresh")))
    CHECK(std::regex_match(name, std::regex("[0-9a-f]{32}\\.(so|calls)")));
  CHECK(names_in(scene.path("fresh")).size() == 2);
  CHECK(!fs::exists(scene.path("escaped")));

  std::string no_code = whole;  // the ELF header of the one shared object
  const size_t elf = whole.find(
      "\x7f"
      "ELF");
  REQUIRE(elf != std::string::npos);
  no_code[elf + 1] = 'X';
  write_bytes(scene.path("other.bundle"), forged(no_code, "\nname [^\n]*", "\nname forged"));
  CHECK(scene({"cache", "load", "other.bundle"}).status == 0);
  const Ran ran = scene.run();
  CHECK(has(ran.err, ": compiled in "));
  CHECK(ran.json()["fused_loops"]["kernels"] == 1);
  const Ran named = scene(
      {"run", "repair.lua", "--input", "z=randn:32x512", "--compiler", "off", "--kernels", "other.bundle", "--json"});
  CHECK(named.status == 0);
  CHECK(has(named.err, "it cannot be loaded from memory"));
  CHECK(named.json()["fused_loops"]["kernels"] == 0);
}

TEST_CASE("N01: bundles where nothing can be written") {
  const CacheScene scene;
  scene.save();
  const auto refused = [&](const Ran& ran, const std::string& part) {
    CAPTURE(ran.err);
    CHECK(ran.status == 2);
    CHECK(ran.out.empty());
    CHECK(has(ran.err, part));
  };
  refused(scene({"cache", "save", "nowhere/warm.bundle"}), "the folder \"nowhere\" does not exist");
  refused(scene({"cache", "save", "."}), "a folder has that name");
  refused(scene({"cache", "load", "nowhere.bundle"}), "there is no such file");
  refused(scene({"cache", "load", "."}), "it is a folder");
  refused(scene({"cache", "load", "repair.lua"}), "no file that `triage cache save` has made");
  refused(scene({"cache", "load"}), "load needs a FILE");
  refused(scene({"cache", "clear", "warm.bundle"}), "clear takes no FILE");
  refused(scene({"cache", "sav"}), "there is no action \"sav\"");
  {
    write_bytes(scene.path("file"), "no folder");
    const Variable odd("TRIAGE_KERNEL_CACHE", scene.path("file"));
    refused(scene({"cache", "load", "warm.bundle"}), "cannot be written to; free some space");
  }
  {
    fs::create_directory(scene.path("open"));
    fs::permissions(scene.path("open"), fs::perms::all);
    const Variable odd("TRIAGE_KERNEL_CACHE", scene.path("open"));
    refused(scene({"cache", "load", "warm.bundle"}), "others may write to");
  }
  fs::create_directory(scene.path("small"));
  const std::string mounted = "mount -t tmpfs -o size=24k,mode=700 none " + shell_quoted(scene.path("small"));
  const std::string apart = unshare("--mount", mounted);
  if (apart.empty()) return;
  const std::string inside = mounted + " || exit 9; TRIAGE_KERNEL_CACHE=" + shell_quoted(scene.path("small")) + " " +
                             shell_quoted(program_path()) + " cache load " + shell_quoted(scene.path("warm.bundle")) +
                             "; status=$?; ls " + shell_quoted(scene.path("small")) + "; exit $status";
  const int status = std::system(
      (apart + " sh -c " + shell_quoted(inside) + " > " + shell_quoted(scene.path("out")) + " 2>&1").c_str());
  CHECK(WEXITSTATUS(status) == 2);
  const std::string said = read_bytes(scene.path("out"));
  CHECK(has(said, "No space left on device"));
  CHECK(std::count(said.begin(), said.end(), '\n') == 1);  // and the folder is empty
}

TEST_CASE("N01: the first call of a policy that a bundle knows takes at most 1 ms more than a warm one") {
  const CacheScene scene;
  scene.save();
  const Variable fresh("TRIAGE_KERNEL_CACHE", scene.path("fresh"));
  REQUIRE(scene({"cache", "load", "warm.bundle"}).status == 0);
  std::vector<double> more;  // ms, one for each process
  for (int process = 0; process < 7; ++process) {
    const auto times = scene({"run", "repair.lua", "--input", "z=randn:32x512,nan=3", "--json"}).json();
    more.push_back((times["first_us"].get<double>() - times["call_us"].get<double>()) / 1000);
  }
  std::sort(more.begin(), more.end());
  CHECK(more[more.size() / 2] <= 1);
}

TEST_CASE("N01: a script saves what it compiled, and loads it in the next process") {
  const CacheScene scene;
  write_bytes(scene.path("save.lua"),
              "local f = triage.compile(function(x) return (x * 3 + 1):exp() end)\n"
              "f(torch.ones({8, 64}))\n"
              "local info = triage.save_cache_artifacts('script.bundle')\n"
              "print(info.kernels, info.calls, info.policies, info.left_out, info.bytes > 1000)\n");
  const Ran saved = scene({"exec", "--compiler", "background", "save.lua"});
  CAPTURE(saved.err);
  CHECK(saved.status == 0);
  CHECK(std::regex_search(saved.out, std::regex("^[1-9]\t0\t0\t0\ttrue\n$")));
  write_bytes(scene.path("load.lua"),
              "print(triage.load_cache_artifacts('script.bundle').kernels > 0)\n"
              "local f = triage.compile(function(x) return (x * 3 + 1):exp() end)\n"
              "f(torch.ones({8, 64}))\n"
              "print(f(torch.zeros({2, 64}))[0][0])\n");
  const Variable logs("TRIAGE_LOGS", "kernels"), none("TRIAGE_CXX", "/nowhere/c++");
  const Ran loaded = scene({"exec", "--compiler", "off", "load.lua"});
  CHECK(loaded.status == 0);
  CHECK(loaded.out == "true\ntensor(2.7183)\n");
  CHECK(has(loaded.err, ": from a bundle"));
  CHECK(!has(loaded.err, ": compiled in "));
}
