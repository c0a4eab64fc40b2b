// A Watch follows what lies at a path, whatever the path leads through and however something else came to lie there.
#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"
#include "tests/policy/kernel_watches.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <triage/runtime.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

namespace fs = std::filesystem;
using triage::Policy;
using triage::Runtime;
using triage::test::first;

namespace watch_places {  // names differ from those of its neighbours, which are compiled together
namespace {

constexpr std::chrono::milliseconds kernel{0}, polling{5};

bool becomes(const Policy& policy, float value) {
  return fake::eventually([&] { return first(policy) == value; });
}

/// `policies` holds a policy that adds the number in lib/n.
struct Scene {
  Scene() { build(folder / "v1", 1); }
  static void build(const fs::path& policies, int number) {
    fs::create_directories(policies / "lib");
    fake::write(policies / "p.fake", "add_file lib/n");
    fake::write(policies / "lib/n", std::to_string(number));
  }
  void start(std::chrono::milliseconds poll) {
    policy = runtime.load(policies / "p.fake");
    watch = runtime.watch(policies, {.debounce = std::chrono::milliseconds(5), .poll_interval = poll});
  }
  void set(const fs::path& file, int number) const { fake::rename_save(file, std::to_string(number)); }
  /// Replaces a link as a whole.
  void switch_link(const fs::path& link, const fs::path& target) const {
    fs::create_symlink(target, folder / "draft");
    fs::rename(folder / "draft", link);
  }

  fake::Folder folder;
  const fs::path policies = folder / "policies";
  Runtime runtime;
  Policy policy;
  triage::Watch watch;
};

struct Swap {
  const char* name;
  std::function<void(const Scene&)> prepare, swap;
};

const Swap swaps[] = {
    {"renamed", [](const Scene& it) { fs::rename(it.folder / "v1", it.policies); },
     [](const Scene& it) {
       fs::rename(it.policies, it.folder / "old");
       fs::rename(it.folder / "v2", it.policies);
     }},
    {"exchanged", [](const Scene& it) { fs::rename(it.folder / "v1", it.policies); },
     [](const Scene& it) {
       REQUIRE(::renameat2(AT_FDCWD, (it.folder / "v2").c_str(), AT_FDCWD, it.policies.c_str(), RENAME_EXCHANGE) == 0);
     }},
    {"a link", [](const Scene& it) { it.switch_link(it.policies, "v1"); },
     [](const Scene& it) { it.switch_link(it.policies, "v2"); }},
    {"a link of a link",
     [](const Scene& it) {
       it.switch_link(it.folder / "inner", it.folder / "v1");
       it.switch_link(it.policies, "inner");
     },
     [](const Scene& it) { it.switch_link(it.folder / "inner", it.folder / "v2"); }},
};

/// No descriptor is left in this process meanwhile.
void without_descriptors(const std::function<void()>& work) {
  rlimit before;
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit none = before;
  none.rlim_cur = 0;
  ::setrlimit(RLIMIT_NOFILE, &none);
  work();
  ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace

TEST_CASE("edits below a folder that was swapped are followed (threads)") {
  for (const auto poll : {kernel, polling})
    for (const Swap& swap : swaps) {
      CAPTURE(poll.count());
      CAPTURE(swap.name);
      Scene it;
      swap.prepare(it);
      it.start(poll);
      it.set(it.policies / "lib/n", 2);
      CHECK(becomes(it.policy, 2));
      Scene::build(it.folder / "v2", 3);
      swap.swap(it);
      CHECK(becomes(it.policy, 3));
      for (int number = 4; number < 7; ++number) {
        it.set(it.policies / "lib/n", number);
        CHECK(becomes(it.policy, static_cast<float>(number)));
      }
    }
}

TEST_CASE("a file behind two links, of which the inner one is switched, is followed (threads)") {
  for (const auto poll : {kernel, polling}) {
    CAPTURE(poll.count());
    Scene it;
    fs::rename(it.folder / "v1", it.policies);
    fs::create_directories(it.folder / "elsewhere");
    for (const int number : {2, 3})
      fake::write(it.folder / fmt::format("elsewhere/{}", number), fmt::format("add {}", number));
    it.switch_link(it.folder / "inner", "elsewhere/2");
    it.switch_link(it.policies / "p.fake", it.folder / "inner");
    it.start(poll);
    CHECK(first(it.policy) == 2);
    it.switch_link(it.folder / "inner", it.folder / "elsewhere/3");
    CHECK(becomes(it.policy, 3));
    fake::write(it.folder / "elsewhere/3", "add 4");
    CHECK(becomes(it.policy, 4));
  }
}

TEST_CASE("what cannot be read because no descriptor is left is no verdict, and is read again (threads)") {
  for (const auto poll : {kernel, polling})
    for (const char* const changed : {"p.fake", "lib/n"}) {
      CAPTURE(poll.count());
      CAPTURE(changed);
      Scene it;
      fs::rename(it.folder / "v1", it.policies);
      fake::write(it.policies / "p.fake", "add_file lib/n 50");  // catches that it cannot be read
      it.start(poll);
      const bool of_source = std::string(changed) == "p.fake";
      fake::write(it.folder / "next", of_source ? "add 7" : "7");
      without_descriptors([&] {
        fs::rename(it.folder / "next", it.policies / changed);
        CHECK(fake::eventually([&] { return it.policy.version().last_error.has_value(); }));
        CHECK(first(it.policy) == 1);
      });
      CHECK(becomes(it.policy, 7));
      CHECK(fake::eventually([&] { return !it.policy.version().last_error; }));
      CHECK(it.policy.version().number == 2);
    }
}

TEST_CASE("a version that was rolled back from stays so where the files cannot be read for a moment (threads)") {
  Scene it;
  fs::rename(it.folder / "v1", it.policies);
  it.start(kernel);
  it.set(it.policies / "lib/n", 2);
  REQUIRE(becomes(it.policy, 2));
  it.policy.rollback(1);
  without_descriptors([&] { it.watch.rescan(); });
  CHECK(it.policy.version().last_error.has_value());
  CHECK(fake::eventually([&] { return !it.policy.version().last_error; }));
  CHECK(first(it.policy) == 1);
}

TEST_CASE("where the kernel refuses watches, files are read until it grants them (threads)") {
  Scene it;
  fs::rename(it.folder / "v1", it.policies);
  fake::refuse_watches(true);
  it.start(kernel);
  it.set(it.policies / "lib/n", 2);
  CHECK(becomes(it.policy, 2));
  fake::write(it.policies / "lib/n", "3");
  CHECK(becomes(it.policy, 3));
  fake::refuse_watches(false);
  it.set(it.policies / "lib/n", 4);
  CHECK(becomes(it.policy, 4));
}

TEST_CASE("a file is followed through another of its hard links, and below what is mounted over it (threads)") {
  Scene it;
  fs::rename(it.folder / "v1", it.policies);
  it.start(kernel);
  fs::create_hard_link(it.policies / "lib/n", it.folder / "other");
  it.watch.rescan();
  fake::write(it.folder / "other", "2");
  CHECK(becomes(it.policy, 2));
  fs::create_directory(it.folder / "mounted");
  fake::write(it.folder / "mounted/n", "3");
  const std::string lib = it.policies / "lib";
  if (::mount((it.folder / "mounted").c_str(), lib.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    MESSAGE("this user may not mount");
    return;
  }
  CHECK(becomes(it.policy, 3));
  fake::write(it.folder / "mounted/n", "4");
  CHECK(becomes(it.policy, 4));
  REQUIRE(::umount2(lib.c_str(), MNT_DETACH) == 0);
  CHECK(becomes(it.policy, 2));
}

}  // namespace watch_places
