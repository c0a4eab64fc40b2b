// Bundles of hostile authors: folders and bundle.json that no honest tool writes. Each is refused with these words, and
// the process goes on.
#include "runtime/policy/bundles/manifest.h"
#include "runtime/policy/files/sha256.h"
#include "tests/attacks/forked.h"
#include "tests/cli/folder.h"
#include "tests/logs.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <triage/triage.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

namespace triage::lua::testing {
namespace {

namespace fs = std::filesystem;

const std::string good = "return function(z) return z + 1 end";

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// bundle.json with these members.
std::string manifest(const std::string& members) { return R"({"name": "b", "version": "1", )" + members + "}"; }

std::string listed(const std::string& name, const std::string& bytes) {
  return fmt::format(R"("{}": "{}")", name, policy::sha256_text(bytes));
}

std::string of_one(const std::string& name, const std::string& bytes) {
  return manifest(R"("policies": {)" + listed(name, bytes) + "}");
}

struct BundleAttack {
  const char *name, *words;
  std::function<void(const fs::path& dir)> make;  // p.lua is there
};

const BundleAttack attacks[] = {
    {"a file above the folder", "..",
     [](const fs::path& dir) { write(dir / "bundle.json", of_one("../p.lua", good)); }},
    {"an absolute file", "absolute path",
     [](const fs::path& dir) { write(dir / "bundle.json", of_one("/etc/passwd", good)); }},
    {"a link out of the folder", "q.lua",
     [](const fs::path& dir) {
       fs::create_symlink("/etc/passwd", dir / "q.lua");
       write(dir / "bundle.json",
             manifest(R"("policies": {)" + listed("p.lua", good) + "," + listed("q.lua", "") + "}"));
     }},
    {"links in a ring", "q.lua",
     [](const fs::path& dir) {
       fs::create_symlink("r.lua", dir / "q.lua");
       fs::create_symlink("q.lua", dir / "r.lua");
       write(dir / "bundle.json", manifest(R"("policies": {)" + listed("p.lua", good) + "," + listed("q.lua", "") +
                                           "," + listed("r.lua", "") + "}"));
     }},
    {"a fifo that is listed", "q.lua",
     [](const fs::path& dir) {
       ::mkfifo((dir / "q.lua").c_str(), 0600);
       write(dir / "bundle.json",
             manifest(R"("policies": {)" + listed("p.lua", good) + "," + listed("q.lua", "") + "}"));
     }},
    {"a fifo in place of bundle.json", "bundle.json",
     [](const fs::path& dir) { ::mkfifo((dir / "bundle.json").c_str(), 0600); }},
    {"a device without end in place of bundle.json", "bundle.json",
     [](const fs::path& dir) { fs::create_symlink("/dev/zero", dir / "bundle.json"); }},
    {"a bundle.json of 200 MB", "bundle.json",
     [](const fs::path& dir) {
       write(dir / "bundle.json", "");
       fs::resize_file(dir / "bundle.json", 200u << 20);
     }},
    {"a million brackets", "bundle.json",
     [](const fs::path& dir) { write(dir / "bundle.json", std::string(1'000'000, '[')); }},
    {"a million files", "bundle.json",
     [](const fs::path& dir) {
       std::string all;
       for (int i = 0; i < 200'000; ++i) all += fmt::format(R"({}"f{}.lua": "{:064}")", i ? "," : "", i, 0);
       write(dir / "bundle.json", manifest(R"("policies": {)" + all + "}"));
     }},
    {"a field twice", "bundle.json",
     [](const fs::path& dir) {
       write(dir / "bundle.json",
             manifest(R"("policies": {)" + listed("p.lua", good) + R"(}, "policies": {)" + listed("q.lua", "x") + "}"));
     }},
    {"one file as a policy and as a module", "twice",
     [](const fs::path& dir) {
       write(dir / "bundle.json",
             manifest(R"("policies": {)" + listed("p.lua", good) + R"(}, "modules": {)" + listed("p.lua", good) + "}"));
     }},
    {"two names of one policy", "two policies",
     [](const fs::path& dir) {
       write(dir / "p.fake", "add 1");
       write(dir / "bundle.json",
             manifest(R"("policies": {)" + listed("p.lua", good) + "," + listed("p.fake", "add 1") + "}"));
     }},
    {"a name that forges a line", "bundle.json",
     [](const fs::path& dir) {
       write(dir / "bundle.json",
             R"({"name": "x\n[error] FORGED", "version": "1", "policies": {)" + listed("p.lua", good) + "}}");
     }},
    {"a hash in capitals", "lower case",
     [](const fs::path& dir) {
       std::string hash = policy::sha256_text(good);
       for (char& c : hash) c = static_cast<char>(std::toupper(c));
       write(dir / "bundle.json", manifest(R"("policies": {"p.lua": ")" + hash + "\"}"));
     }},
    {"a script that nobody listed", "hidden/q.lua",
     [](const fs::path& dir) {
       write(dir / "hidden/q.lua", good);
       write(dir / "bundle.json", of_one("p.lua", good));
     }},
    {"a policy that reads what is not listed", "number",
     [](const fs::path& dir) {
       const std::string reads = "local t = torch.load('number.npy') return function(z) return z + 1 end";
       write(dir / "p.lua", reads);
       write(dir / "number.npy", "x");
       write(dir / "bundle.json", of_one("p.lua", reads));
     }},
    {"a table that is a pickle of something else", "t.pt",
     [](const fs::path& dir) {
       const std::string reads = "local t = torch.load('t.pt') return function(z) return z + 1 end";
       const std::string table =
           "\x80\x02"
           "cos\nsystem\nX\x02\0\0\0ls\x85R.";
       write(dir / "p.lua", reads);
       write(dir / "t.pt", table);
       write(dir / "bundle.json",
             manifest(R"("policies": {)" + listed("p.lua", reads) + R"(}, "tables": {)" + listed("t.pt", table) + "}"));
     }},
    {"a policy without end at load", "budget",
     [](const fs::path& dir) {
       const std::string endless = "while true do end";
       write(dir / "p.lua", endless);
       write(dir / "bundle.json", of_one("p.lua", endless));
     }},
    {"folders in folders", "is not listed|d/q.lua",
     [](const fs::path& dir) {
       std::string deep = dir.string();
       for (int i = 0; i < 800; ++i) deep += "/d";
       fs::create_directories(deep);
       write(deep + "/q.lua", good);
       write(dir / "bundle.json", of_one("p.lua", good));
     }},
    {"a link to its own folder", "no error",
     [](const fs::path& dir) {
       fs::create_directory_symlink(".", dir / "again");
       write(dir / "bundle.json", of_one("p.lua", good));
     }},
};

RuntimeOptions small_budget() {
  RuntimeOptions options;
  options.log = test::no_log();
  options.limits.seconds = 0.5;
  return options;
}

std::string load(const fs::path& dir) {
  try {
    Runtime runtime(small_budget());
    const Bundle bundle = runtime.load_bundle(dir);
    return bundle.policy("p").run({at::ones({2, 2})})[0][0][0].item<float>() == 2 ? "no error" : "a wrong answer";
  } catch (const std::exception& error) {
    return error.what();
  }
}

bool has_one_of(const std::string& text, const std::string& words) {
  for (size_t begin = 0; begin <= words.size();) {
    const size_t end = std::min(words.find('|', begin), words.size());
    if (text.find(words.substr(begin, end - begin)) != std::string::npos) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

TEST_CASE("attacks: hostile bundles are refused with a reason, leave the live version, and the process goes on") {
  for (const BundleAttack& attack : attacks) {
    CAPTURE(std::string(attack.name));
    const TemporaryFolder folder;
    const fs::path bad = folder.path() / "bad", fine = folder.path() / "fine";
    write(bad / "p.lua", good);
    attack.make(bad);
    write(fine / "p.lua", good);
    write(fine / "bundle.json", of_one("p.lua", good));
    const Ended ended = in_fork(
        [&](const Say& say) -> std::string {
          Runtime runtime(small_budget());
          fs::create_directory_symlink(fine, folder.path() / "live");
          const Bundle live = runtime.load_bundle(folder.path() / "live");
          fs::remove(folder.path() / "live");
          fs::create_directory_symlink(bad, folder.path() / "live");
          say("reloading");
          live.reload();
          if (live.policy("p").run({at::ones({2, 2})})[0][0][0].item<float>() != 2) return "a wrong answer";
          say("loading");
          const std::string outcome = load(bad);
          say("loading a healthy one");
          const std::string after = load(fine);
          return after == "no error" ? outcome : "the healthy bundle fails: " + after;
        },
        20);
    INFO(ended.stage << ": " << ended.text);
    CHECK(ended.death == "");
    CHECK(has_one_of(ended.text, attack.words));
  }
}

}  // namespace triage::lua::testing
