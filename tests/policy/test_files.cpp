// What policies read beside their source: which files, that all interpreters of a version see the same bytes, and that
// a change of them is a change of the policy.
#include "tests/logs.h"
#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <triage/capsule.h>
#include <triage/runtime.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <sstream>

#include "runtime/policy/files/contents.h"
#include "runtime/policy/files/policy_files.h"

namespace fs = std::filesystem;
using triage::Policy;
using triage::Reload;
using triage::Runtime;
using triage::policy::Contents;
using triage::policy::FileContent;
using triage::test::first;
using triage::test::says;

namespace {

/// A policy that adds the number in lib/n.
struct Counted {
  explicit Counted(triage::RuntimeOptions options = {}) : runtime(std::move(options)) {
    fs::create_directory(folder / "lib");
    fake::write(folder / "lib/n", "1");
    fake::write(folder / "p.fake", "add_file lib/n");
  }
  Policy load() { return runtime.load(folder / "p.fake"); }
  fake::Folder folder;
  Runtime runtime;
};

/// Why a read of `name` fails; the bytes where it does not.
std::string read(const fs::path& folder, const std::string& name, uint64_t largest = 1000) {
  const FileContent content = triage::policy::read_beneath(folder, name, largest);
  return content.bytes ? *content.bytes : "refused: " + content.error;
}

}  // namespace

TEST_CASE("names of files that a policy may read") {
  for (const char* name : {"n", "lib/n", "a.b/c-d.npy", "with space.pt", "..n", "n..", "\xc3\xa4.pt"})
    CHECK_NOTHROW(triage::policy::check_name(name));
  const std::map<std::string, const char*> refused = {{"", "an empty one"},
                                                      {"/etc/passwd", "an absolute path"},
                                                      {"../n", "one with '..'"},
                                                      {"lib/../../n", "one with '..'"},
                                                      {"lib/..", "one with '..'"},
                                                      {"lib//n", "an empty part"},
                                                      {"./n", "an empty part or '.'"},
                                                      {"lib/", "an empty part"},
                                                      {std::string("n\0.pt", 5), "a control character"},
                                                      {"n\n", "a control character"},
                                                      {std::string(1025, 'n'), "more than 1024 bytes"}};
  for (const auto& [path, why] : refused) {
    const std::string name = path;
    INFO(name);
    CHECK(says(fake::message_of([&] { triage::policy::check_name(name); }), why));
  }
}

TEST_CASE("a read stays in the folder, whatever links say, and opens only regular files") {
  fake::Folder outside;
  fake::write(outside / "secret", "secret");
  fs::create_directories(outside / "p/lib/deep");
  const fs::path folder = outside / "p";
  fake::write(folder / "lib/n", "here");
  const auto link = [&](const std::string& name, const std::string& target) {
    fs::create_symlink(target, folder / name);
  };
  CHECK(read(folder, "lib/n") == "here");
  link("to_n", "lib/n");
  link("lib/deep/up", "../../lib/n");
  link("again", "lib");
  link("chain", "again/../to_n");
  for (const char* inside : {"to_n", "lib/deep/up", "again/n", "chain"}) CHECK(read(folder, inside) == "here");
  link("out", "../secret");
  link("lib/out", "../../secret");
  link("whole", (outside / "secret").string());
  link("above", "..");
  link("round", "round");
  link("self", ".");
  link("dangling", "lib/none");
  for (const char* outward : {"out", "lib/out", "above/secret"})
    CHECK(says(read(folder, outward), "leads out of the folder"));
  CHECK(says(read(folder, "whole"), "absolute"));
  CHECK(says(read(folder, "round"), "Too many levels"));
  CHECK(says(read(folder, "self"), "a directory"));
  CHECK(says(read(folder, "dangling"), "there is no such file"));
  CHECK(says(read(folder, "lib"), "it is a directory"));
  CHECK(says(read(folder, "lib/n/x"), "refused: "));
  CHECK(says(read(folder, "none/n"), "there is no such file"));
  CHECK(says(read(folder / "gone", "n"), "there is no such file"));
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
  CHECK(says(read(folder, "fifo"), "not a regular file"));
  CHECK(read(folder, "lib/n", 4) == "here");
  CHECK(says(read(folder, "lib/n", 3), "larger than 3 bytes"));
  REQUIRE(::truncate((folder / "lib/n").c_str(), off_t{1} << 40) == 0);  // takes no room on the disk
  CHECK(says(read(folder, "lib/n"), "larger than 1000 bytes"));
  link("zero", "/dev/zero");
  CHECK(says(read(folder, "zero"), "absolute"));
}

TEST_CASE("contents: packed and back, and a damaged text is none") {
  using triage::policy::packed;
  Contents contents{"add 1\n12\n", {}, true};
  contents.files["a"].set_bytes(std::string("\0\n7\n", 4));
  contents.files["b"] = FileContent::unread("there is no such file", 12);
  contents.files["c"].set_bytes("x");
  contents.files["c"].refused = true;
  const std::string text = packed(contents);
  CHECK(triage::policy::unpacked(text) == contents);
  CHECK(triage::policy::unpacked(text)->hash() == contents.hash());
  for (size_t size = 0; size < text.size(); ++size) {
    const auto cut = triage::policy::unpacked(text.substr(0, size));
    if (cut) CHECK_FALSE(*cut == contents);
  }
  for (size_t at = 0; at < text.size(); ++at)
    for (const char byte : {'0', '9', '\n', '\xff'}) {
      std::string damaged = text;
      damaged[at] = byte;
      (void)triage::policy::unpacked(damaged);  // nothing worse than other contents
    }
  CHECK_FALSE(triage::policy::unpacked("18446744073709551615\nx"));
}

TEST_CASE("what a version reads is part of it: the hash, and the same bytes for all its interpreters") {
  Counted host;
  const Policy policy = host.load();
  CHECK(first(policy) == 1.0f);
  const std::string hash = policy.version().hash;
  fake::write(host.folder / "alone.fake", "add_file lib/none 1");
  const Policy alone = host.runtime.load(host.folder / "alone.fake");
  CHECK(alone.version().hash == Contents{"add_file lib/none 1"}.hash());  // of the source, where nothing else was read
  CHECK(hash != Contents{"add_file lib/n"}.hash());
  CHECK(policy.reload() == Reload::unchanged);
  fake::write(host.folder / "lib/n", "2");
  CHECK(policy.run_tests().empty());  // in an interpreter of its own, from what was read before
  CHECK(policy.reload() == Reload::swapped);
  CHECK(first(policy) == 2.0f);
  CHECK(policy.version().hash != hash);
  fs::remove_all(host.folder / "lib");
  policy.rollback(1);
  CHECK(first(policy) == 1.0f);
  CHECK(policy.version().hash == hash);
  CHECK(policy.reload() == Reload::refused);
  CHECK(says(policy.version().last_error->message,
             "cannot read 'lib/n' in the folder of the policy: there is no such file"));
}

TEST_CASE("a file that was missing when a version went live is looked for at the next reload") {
  Counted host;
  fake::write(host.folder / "p.fake", "add_file lib/late 5");
  const Policy policy = host.load();
  CHECK(first(policy) == 5.0f);
  CHECK(policy.reload() == Reload::unchanged);
  fake::write(host.folder / "lib/late", "7");
  CHECK(policy.reload() == Reload::swapped);
  CHECK(first(policy) == 7.0f);
  fs::remove(host.folder / "lib/late");
  CHECK(policy.reload() == Reload::swapped);
  CHECK(first(policy) == 5.0f);
}

TEST_CASE("files that change while a version is loaded: it is made of what was there at one time") {
  Counted host;
  fake::write(host.folder / "p.fake", "add_file lib/n\nhook\nadd_file lib/m");
  fake::write(host.folder / "lib/m", "10");
  int loads = 0;
  fake::when_loaded = [&] {  // between the two reads
    if (++loads > 1) return;
    fake::write(host.folder / "lib/n", "2");
    fake::write(host.folder / "lib/m", "20");
  };
  const Policy policy = host.load();
  CHECK(first(policy) == 22.0f);
  loads = 0;
  fake::when_loaded = [&] { fake::write(host.folder / "lib/n", std::to_string(++loads)); };
  fake::write(host.folder / "p.fake", "add_file lib/n\nhook\nadd_file lib/m\nadd 100");
  CHECK(policy.reload() == Reload::refused);
  CHECK(says(policy.version().last_error->message, "its files changed each time that triage read them (4 times)"));
  CHECK(first(policy) == 22.0f);
  fake::when_loaded = nullptr;
  CHECK(policy.reload() == Reload::swapped);
}

TEST_CASE("the last good contents survive a restart with a broken file beside the policy") {
  fake::Folder cache;
  const triage::RuntimeOptions options{.log = triage::test::no_log(), .cache_dir = cache.path()};
  Counted host(options);
  CHECK(first(host.load()) == 1.0f);
  fs::remove(host.folder / "lib/n");
  const Policy policy = host.load();
  CHECK(first(policy) == 1.0f);
  CHECK(says(policy.version().last_error->message, "there is no such file"));
  CHECK(policy.reload() == Reload::refused);
  fake::write(host.folder / "lib/n", "3");
  CHECK(policy.reload() == Reload::swapped);
  CHECK(first(policy) == 3.0f);
  fs::remove(host.folder / "p.fake");
  CHECK(first(host.load()) == 3.0f);
}

TEST_CASE("a policy that was loaded from text has no files") {
  Runtime runtime;
  triage::ScriptOptions asked;
  CHECK_FALSE(asked.read_file);
  CHECK(fake::message_of([&] { runtime.load_source("add_file lib/n", "p.fake"); }) != "");
}

TEST_CASE("a watch follows what a policy reads (threads)") {
  for (const std::chrono::milliseconds poll : {std::chrono::milliseconds(0), std::chrono::milliseconds(5)}) {
    Counted host;
    const Policy policy = host.load();
    const auto becomes = [&](float value) { return fake::eventually([&] { return first(policy) == value; }); };
    const auto watch =
        host.runtime.watch(host.folder.path(), {.debounce = std::chrono::milliseconds(5), .poll_interval = poll});
    fake::write(host.folder / "lib/n", "2");
    CHECK(becomes(2));
    fake::rename_save(host.folder / "lib/n", "3");
    CHECK(becomes(3));
    fs::rename(host.folder / "lib", host.folder / "away");  // the folder as a whole
    CHECK(fake::eventually([&] { return policy.version().last_error.has_value(); }));
    fs::create_directory(host.folder / "lib");
    fake::write(host.folder / "lib/n", "4");
    CHECK(becomes(4));
    CHECK_FALSE(policy.version().last_error.has_value());
    fake::write(host.folder / "p.fake", "add_file other/deep/m");  // of a folder that is not there yet
    CHECK(fake::eventually([&] { return policy.version().last_error.has_value(); }));
    fs::create_directories(host.folder / "other/deep");
    fake::write(host.folder / "other/deep/m", "5");
    CHECK(becomes(5));
    fake::write(host.folder / "other/deep/m", "6");
    CHECK(becomes(6));
    fs::create_directories(host.folder / "..data/v1");  // as Kubernetes mounts: links inside the folder
    fs::create_directories(host.folder / "..data/v2");
    fake::write(host.folder / "..data/v1/k", "7");
    fake::write(host.folder / "..data/v2/k", "8");
    fs::create_directory_symlink("..data/v1", host.folder / "now");
    fake::write(host.folder / "p.fake", "add_file now/k");
    CHECK(becomes(7));
    fs::create_directory_symlink("..data/v2", host.folder / "next");
    fs::rename(host.folder / "next", host.folder / "now");
    CHECK(becomes(8));
    fake::write(host.folder / "..data/v2/k", "9");
    CHECK(becomes(9));
  }
}

namespace {

/// Refuses files whose bytes hold "bad", and notes what it saw.
struct Inspector {
  std::function<void(const fs::path&, std::string_view)> verify() {
    return [this](const fs::path& path, std::string_view bytes) {
      seen.push_back(path.filename().string() + "=" + std::string(bytes));
      if (bytes.find("bad") != std::string_view::npos) throw std::runtime_error("no signature");
      if (bytes.find("worse") != std::string_view::npos) throw 1;
    };
  }
  std::vector<std::string> seen;
};

}  // namespace

TEST_CASE("the host sees every file before anything in it is used, and what it refuses is not used") {
  fake::Folder cache;
  Inspector inspector;
  triage::RuntimeOptions options{.log = triage::test::no_log(), .cache_dir = cache.path()};
  options.verify = inspector.verify();
  Counted host(options);
  const Policy policy = host.load();
  CHECK(inspector.seen == std::vector<std::string>{"p.fake=add_file lib/n", "n=1"});
  fake::write(host.folder / "lib/n", "2bad");
  CHECK(policy.reload() == Reload::refused);
  CHECK(says(policy.version().last_error->message, "(RuntimeOptions::verify): no signature"));
  fake::write(host.folder / "p.fake", "add_file lib/n 5\nadd_file lib/n 6");  // an engine that catches it
  CHECK(policy.reload() == Reload::swapped);
  CHECK(first(policy) == 11.0f);  // refused the second time as well, and to every interpreter
  fake::write(host.folder / "p.fake", "add 1 worse");
  CHECK(policy.reload() == Reload::refused);
  CHECK(says(policy.version().last_error->message, "no std::exception"));
  inspector.seen.clear();
  CHECK(first(host.load()) == 11.0f);  // what was live is shown, too, and the file again
  CHECK(inspector.seen == std::vector<std::string>{"p.fake=add_file lib/n 5\nadd_file lib/n 6", "p.fake=add 1 worse"});
  CHECK(policy.replace("add 1 bad") == Reload::swapped);  // no file
}
