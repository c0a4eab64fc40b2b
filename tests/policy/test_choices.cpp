// What `pin` and `rollback` made live is live after a restart, too.
#include "tests/logs.h"
#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <triage/runtime.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

#include "runtime/policy/files/kept_files.h"

namespace fs = std::filesystem;
using triage::Policy;
using triage::Reload;
using triage::Runtime;
using triage::test::first;
using triage::test::says;

namespace {

/// A policy file with a Runtime that starts again.
struct Restarted {
  Restarted() { fake::write(file, "add 1"); }
  void start() {
    policy = {};
    runtime.reset();
    text.str("");
    runtime.emplace(triage::RuntimeOptions{.log = triage::test::log_to(text), .cache_dir = folder / "cache"});
    policy = runtime->load(file);
  }
  /// "add 1", and "add 2" that is live.
  void start_with_two_versions() {
    start();
    fake::write(file, "add 2");
    CHECK(policy.reload() == Reload::swapped);
  }
  fs::path state() const {
    for (const auto& item : fs::directory_iterator(folder / "cache/chosen")) return item.path();
    return {};
  }
  fake::Folder folder;
  const fs::path file = folder / "p.fake";
  std::ostringstream text;
  std::optional<Runtime> runtime;
  Policy policy;
};

}  // namespace

TEST_CASE("a pinned version is live and pinned after a restart, whatever the file says, until unpin") {
  Restarted host;
  host.start_with_two_versions();
  host.policy.pin(1);
  const std::string hash = host.policy.version().hash;
  for (const char* content : {"add 2", "add 3", "broken on purpose", ""}) {
    if (*content)
      fake::write(host.file, content);
    else
      fs::remove(host.file);
    host.start();
    CHECK(first(host.policy) == 1.0f);
    CHECK(host.policy.version().pinned);
    CHECK(host.policy.version().hash == hash);
    CHECK(says(host.text.str(), "what was pinned before this start (version 1 then, source " + hash + ") is live"));
    CHECK(host.policy.reload() == Reload::unchanged);
  }
  fake::write(host.file, "add 4");
  CHECK(host.policy.unpin() == Reload::swapped);
  CHECK(first(host.policy) == 4.0f);
  host.start();
  CHECK(first(host.policy) == 4.0f);
  CHECK_FALSE(host.policy.version().pinned);
}

TEST_CASE("a version that was rolled back to stays live over restarts until the file changes") {
  Restarted host;
  host.start_with_two_versions();
  host.policy.rollback(1);
  for (int i = 0; i < 2; ++i) {
    host.start();
    CHECK(first(host.policy) == 1.0f);
    CHECK_FALSE(host.policy.version().pinned);
    CHECK(says(host.text.str(), "what was rolled back to before this start"));
  }
  fake::write(host.file, "add 3");  // while it runs
  CHECK(host.policy.reload() == Reload::swapped);
  host.start();
  CHECK(first(host.policy) == 3.0f);
  CHECK(host.state().empty());

  host.policy.reload();
  fake::write(host.file, "add 4");
  CHECK(host.policy.reload() == Reload::swapped);
  host.policy.rollback(1);
  fake::write(host.file, "add 5");  // while it does not
  host.start();
  CHECK(first(host.policy) == 5.0f);
  CHECK(says(host.text.str(), "what is on the disk has changed since version 1 was rolled back to"));
}

TEST_CASE("a rollback to what the file says is no choice, and one that is broken now falls back to it") {
  Restarted host;
  host.start_with_two_versions();
  host.policy.rollback(1);
  CHECK_FALSE(host.state().empty());
  host.policy.rollback(2);
  CHECK(host.state().empty());
  host.policy.rollback(1);
  fake::write(host.file, "broken on purpose");
  host.start();
  CHECK(first(host.policy) == 1.0f);  // the last good source
  CHECK(says(host.policy.version().last_error->message, "on purpose"));
}

TEST_CASE("files that a policy read are part of what is pinned or rolled back to") {
  Restarted host;
  fake::write(host.folder / "n", "1");
  fake::write(host.file, "add_file n");
  host.start();
  fake::write(host.folder / "n", "2");
  CHECK(host.policy.reload() == Reload::swapped);
  host.policy.rollback(1);
  host.start();
  CHECK(first(host.policy) == 1.0f);
  CHECK(host.policy.reload() == Reload::swapped);  // asked for
  CHECK(first(host.policy) == 2.0f);
  host.policy.rollback(1);
  fake::write(host.folder / "n", "3");
  host.start();
  CHECK(first(host.policy) == 3.0f);
  host.policy.pin(1);
  fs::remove(host.folder / "n");
  host.start();
  CHECK(first(host.policy) == 3.0f);
}

TEST_CASE("a version that is replaced, or fails on trial, after a rollback is no longer chosen") {
  Restarted host;
  host.start();
  CHECK(first(host.policy) == 1.0f);
  fake::write(host.file, "raise_above 5\nadd 2");
  CHECK(host.policy.reload() == Reload::swapped);
  fake::write(host.file, "add 4");
  CHECK(host.policy.reload() == Reload::swapped);
  host.policy.rollback(2);
  CHECK_FALSE(host.state().empty());
  CHECK(host.policy.run({at::full({4, 2}, 10.0f)})[0].flatten()[0].item<float>() == 11.0f);  // version 1 answers
  CHECK(host.policy.version().number == 1);
  CHECK_FALSE(host.state().empty());  // the file is followed no sooner than it changes
  host.policy.rollback(1);
  CHECK_FALSE(host.state().empty());
  CHECK(host.policy.replace("add 3") == Reload::swapped);
  CHECK(host.state().empty());
  host.start();
  CHECK(first(host.policy) == 4.0f);
}

TEST_CASE("a state file that is damaged, torn, or another's is ignored, and the log says so") {
  Restarted host;
  host.start_with_two_versions();
  host.policy.pin(1);
  const fs::path state = host.state();
  const std::string good = fake::read(state);
  const auto ignored = [&] {
    host.start();
    return first(host.policy) == 2.0f && !host.policy.version().pinned &&
           says(host.text.str(), "what was live before this start is not known: ");
  };
  for (size_t size = 0; size < good.size(); size += 7) {
    fake::write(state, good.substr(0, size));
    CHECK(ignored());
  }
  for (size_t at = 0; at < good.size(); at += 5) {
    std::string damaged = good;
    damaged[at] ^= 1;
    fake::write(state, damaged);
    CHECK(ignored());
  }
  fake::write(state, good);
  fs::permissions(state, fs::perms::group_write, fs::perm_options::add);
  CHECK(ignored());
  fs::permissions(state, fs::perms::group_write, fs::perm_options::remove);
  host.start();
  CHECK(first(host.policy) == 1.0f);
  fs::rename(state, host.folder / "elsewhere");
  fs::create_symlink(host.folder / "elsewhere", state);
  CHECK(ignored());
  fs::remove(state);
  fs::create_directory(state);
  CHECK(ignored());
}

TEST_CASE("what was pinned and is refused by the host is told, and the file is followed") {
  Restarted host;
  host.start_with_two_versions();
  host.policy.pin(1);
  std::ostringstream text;
  triage::RuntimeOptions options{.log = triage::test::log_to(text), .cache_dir = host.folder / "cache"};
  options.verify = [](const fs::path&, std::string_view bytes) {
    if (bytes == "add 1") throw std::runtime_error("revoked");
  };
  Runtime runtime(options);
  const Policy policy = runtime.load(host.file);
  CHECK(first(policy) == 2.0f);
  CHECK(says(text.str(),
             "[error] policy '" + host.file.string() + "': what was pinned before this start cannot be used"));
  CHECK(says(text.str(), "revoked"));
}

TEST_CASE("a process that is killed at any moment leaves the old choice or the new one") {
  Restarted host;
  host.start();
  const triage::policy::KeptChoices kept(host.folder / "cache");
  const auto choice = [](int number) {
    return triage::policy::VersionChoice{triage::policy::ChosenBy::pin,
                                         number,
                                         {"add " + std::to_string(number) + std::string(100'000, ' '), {}, true},
                                         {}};
  };
  REQUIRE(kept.keep(host.file, choice(1)).empty());
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int number = 2;; ++number) (void)kept.keep(host.file, choice(number));
    }
    REQUIRE(child > 0);
    std::this_thread::sleep_for(std::chrono::microseconds(500 + 700 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const auto [found, trouble] = kept.find(host.file);
    REQUIRE(found.has_value());
    CHECK(trouble.empty());
    CHECK(found->live.source.starts_with("add " + std::to_string(found->number) + " "));
  }
}

TEST_CASE("what was refused before a restart is refused after it, and the version that was live serves") {
  const auto refuses = [](const char* source, const char* why) {
    CAPTURE(std::string(source));
    Restarted host;
    host.start();
    CHECK(first(host.policy) == 1.0f);
    fake::write(host.file, source);
    CHECK(host.policy.reload() == Reload::refused);
    for (int i = 0; i < 2; ++i) {
      host.start();
      CHECK(first(host.policy) == 1.0f);
      CHECK(host.policy.statistics().refused == 1);
      REQUIRE(host.policy.version().last_error);
      CHECK(says(host.policy.version().last_error->message, why));
      CHECK(says(host.text.str(), why));
    }
    fake::write(host.file, "add 3");  // while it does not run
    host.start();
    CHECK(first(host.policy) == 3.0f);
    CHECK_FALSE(host.policy.version().last_error);
    CHECK(host.state().empty());
  };
  refuses("add 2\ntest sums fails", "tests: 'sums': fails");
  refuses("inputs a b\nadd 2", "the inputs");
  refuses("broken on purpose", "on purpose");
}

TEST_CASE("what failed in calls and was taken back stays so after a restart, until the file changes") {
  Restarted host;
  host.start();
  CHECK(first(host.policy) == 1.0f);
  fake::write(host.file, "count\nadd 1\nraise_above 5");
  CHECK(host.policy.reload() == Reload::swapped);
  const auto high = [] { return at::full({2, 3}, 9.0f); };
  CHECK(host.policy.run({high()})[0].equal(high() + 1));
  CHECK(host.policy.version().number == 1);
  for (int i = 0; i < 2; ++i) {
    host.start();
    CHECK(host.policy.run({high()})[0].equal(high() + 1));
    CHECK(host.policy.versions().size() == 1);
    CHECK(host.policy.statistics().refused == 1);
    REQUIRE(host.policy.version().last_error);
    CHECK(says(host.text.str(), "its source failed in calls, and was taken back"));
    CHECK(host.policy.reload() == Reload::swapped);  // the host asks for it
    CHECK(host.policy.run({high()})[0].equal(high() + 1));
    CHECK(host.policy.version().number == 1);
  }
  fake::write(host.file, "add 3");
  host.start();
  CHECK(first(host.policy) == 3.0f);
  CHECK_FALSE(host.policy.version().last_error);
}

TEST_CASE("what was refused is on trial where a restart does not refuse it, and is over the version before again") {
  Restarted host;
  host.start();
  CHECK(first(host.policy) == 1.0f);
  fake::write(host.file, "add 1\ndouble");
  CHECK(host.policy.reload() == Reload::refused);
  for (int i = 0; i < 2; ++i) {
    host.start();
    CHECK(host.policy.version().number == 2);
    CHECK(host.policy.version().on_trial);
    CHECK_FALSE(host.state().empty());
  }
  CHECK((host.policy.run({at::zeros({2, 3})})[0].scalar_type() == at::kFloat));  // which says that it changes the dtype
  CHECK(host.policy.version().number == 1);
  host.start();
  CHECK(host.policy.versions().size() == 1);
  CHECK((host.policy.run({at::zeros({2, 3})})[0].scalar_type() == at::kFloat));
}

TEST_CASE("a rollback that ends a pin holds whatever else is looked at, and what is saved under a pin is told") {
  Restarted host;
  host.start_with_two_versions();
  host.policy.pin(1);
  fake::write(host.file, "add 3");
  CHECK(host.policy.reload() == Reload::unchanged);
  CHECK(says(host.text.str(), "has changed; version 1 is pinned, and stays live until `unpin`"));
  host.text.str("");
  CHECK(host.policy.reload() == Reload::unchanged);
  CHECK(host.text.str().empty());
  fake::write(host.file, "add 4");
  host.policy.rollback(1);
  auto watch = host.runtime->watch(host.folder.path(), {.debounce = std::chrono::milliseconds(1)});
  fake::write(host.folder / "notes.txt", "hello");
  watch.rescan();
  CHECK(first(host.policy) == 1.0f);
  fake::write(host.file, "add 5");
  watch.rescan();
  CHECK(first(host.policy) == 5.0f);
}
