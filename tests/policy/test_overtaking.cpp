// Decisions of a host while a reload is running: they take effect at once, and the reload changes nothing.
#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/bundle.h>
#include <triage/runtime.h>

#include <functional>
#include <future>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/policy/bundles/manifest.h"

namespace fs = std::filesystem;
using triage::Bundle;
using triage::Policy;
using triage::Reload;
using triage::Runtime;
using triage::Watch;
using triage::WatchEvent;
using triage::test::first;

namespace overtaking {  // names differ from those of its neighbours, which are compiled together
namespace {

/// While alive, a script with the line `hook` stands still when it is loaded, from then on until `go_on`.
class StandsStill {
 public:
  StandsStill() {
    fake::when_loaded = [this] {
      if (is_inside_.try_wait()) return;  // the first one alone
      is_inside_.count_down();
      may_go_on_.wait();
    };
  }
  ~StandsStill() {
    go_on();
    fake::when_loaded = nullptr;
  }
  void wait_until_inside() { is_inside_.wait(); }
  void go_on() {
    if (!may_go_on_.try_wait()) may_go_on_.count_down();
  }

 private:
  std::latch is_inside_{1}, may_go_on_{1};
};

/// A policy with two versions of a file, the second one live.
struct Scene {
  explicit Scene(triage::RuntimeOptions options = {}) : runtime(std::move(options)) {
    fake::write(file, "add 1");
    policy = runtime.load(file);
    save("add 2");
    policy.reload();
    first(policy);
  }
  void save(const std::string& source) const { fake::rename_save(file, source); }

  /// Decides while a reload of `source` stands still; returns what the reload gave.
  Reload decide_during(const std::string& source, const std::function<void()>& decide) {
    StandsStill still;
    save("hook\n" + source);
    std::future<Reload> reload = std::async(std::launch::async, [&] { return policy.reload(); });
    still.wait_until_inside();
    decide();
    still.go_on();
    return reload.get();
  }

  fake::Folder folder;
  const fs::path file = folder / "p.fake";
  Runtime runtime;
  Policy policy;
};

bool says(const Policy& policy, const std::string& what) {
  const auto failure = policy.version().last_error;
  return failure && failure->message.find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("a rollback overtakes a reload that is running, which changes nothing; the next change is taken up") {
  Scene scene;
  const auto rolls_back = [&] {
    scene.policy.rollback(1);
    CHECK(first(scene.policy) == 1.0f);
  };
  CHECK(scene.decide_during("add 3", rolls_back) == Reload::refused);
  CHECK(first(scene.policy) == 1.0f);
  CHECK(scene.policy.version().number == 1);
  CHECK(scene.policy.versions().size() == 2);
  CHECK(says(scene.policy, "was cancelled, because version 1 was rolled back to meanwhile"));
  Watch watch = scene.runtime.watch(scene.folder.path());
  watch.rescan();
  CHECK(first(scene.policy) == 1.0f);  // the file is as the reload saw it
  scene.save("add 4");
  watch.rescan();
  CHECK(first(scene.policy) == 4.0f);
  CHECK(!scene.policy.version().last_error);
}

TEST_CASE("a pin overtakes a reload that is running, and unpin follows what was saved") {
  Scene scene;
  CHECK(scene.decide_during("add 3", [&] { scene.policy.pin(1); }) == Reload::refused);
  CHECK(first(scene.policy) == 1.0f);
  CHECK(scene.policy.version().pinned);
  CHECK(scene.policy.unpin() == Reload::swapped);
  CHECK(first(scene.policy) == 3.0f);
}

TEST_CASE("a promotion overtakes a reload that is running; a candidate begins and ends beside it") {
  Scene scene;
  scene.policy.shadow_source("add 10");
  CHECK(scene.decide_during("add 3", [&] { scene.policy.promote(); }) == Reload::refused);
  CHECK(first(scene.policy) == 10.0f);
  const auto candidates = [&] {
    scene.policy.shadow_source("add 11");
    scene.policy.end_candidate();
    scene.policy.canary_source("add 12", {.share = 1});
    CHECK(first(scene.policy) == 12.0f);
  };
  CHECK(scene.decide_during("add 4", candidates) == Reload::swapped);
  CHECK(scene.policy.version().number == 6);
  CHECK(first(scene.policy) == 12.0f);  // the candidate goes on beside the new version
  CHECK(scene.policy.end_candidate().restarts == 1);
  CHECK(first(scene.policy) == 4.0f);
}

TEST_CASE("a script that is loaded may roll its own policy back by a function of the host") {
  Scene scene;
  fake::when_loaded = [&] { scene.policy.rollback(1); };
  scene.save("hook\nadd 3");
  CHECK(scene.policy.reload() == Reload::refused);
  fake::when_loaded = nullptr;
  CHECK(first(scene.policy) == 1.0f);
  CHECK(says(scene.policy, "was cancelled"));
}

TEST_CASE("a source that the host gives is overtaken by nothing: it is tried again beside what is live by then") {
  Scene scene;
  StandsStill still;
  auto replaced = std::async(std::launch::async, [&] { return scene.policy.replace("hook\nadd 3"); });
  still.wait_until_inside();
  scene.policy.rollback(1);
  CHECK(first(scene.policy) == 1.0f);
  still.go_on();
  CHECK(replaced.get() == Reload::swapped);
  CHECK(first(scene.policy) == 3.0f);
}

TEST_CASE("a Watch tells of a reload that was overtaken, from a callback too, and follows the next change") {
  Scene scene;
  std::mutex mutex;
  std::vector<WatchEvent> events;
  triage::WatchOptions options{.debounce = std::chrono::milliseconds(1)};
  options.on_event = [&](const WatchEvent& event) {
    const std::lock_guard lock(mutex);
    events.push_back(event);
    if (event.kind == WatchEvent::Kind::reloaded && event.version == 3) scene.policy.rollback(1);
  };
  Watch watch = scene.runtime.watch(scene.folder.path(), options);
  scene.save("add 3");
  watch.rescan();
  CHECK(first(scene.policy) == 1.0f);  // the callback has decided so
  {
    StandsStill still;  // before a Watch can load it
    scene.save("hook\nadd 4");
    auto look = std::async(std::launch::async, [&] { watch.rescan(); });
    still.wait_until_inside();
    scene.policy.pin(2);
    CHECK(first(scene.policy) == 2.0f);
    still.go_on();
    look.get();
  }
  CHECK(first(scene.policy) == 2.0f);
  const std::lock_guard lock(mutex);
  REQUIRE(!events.empty());
  CHECK(events.back().kind == WatchEvent::Kind::refused);
  CHECK(events.back().version == 2);
  CHECK(events.back().message.find("was cancelled, because version 2 was pinned meanwhile") != std::string::npos);
}

TEST_CASE("a rollback of a bundle overtakes the reload of its folder") {
  fake::Folder folder;
  const auto pack = [&](const std::string& version, const std::string& source) {
    fake::rename_save(folder / "a.fake", source);
    fake::rename_save(folder / "b.fake", "mul 2");
    auto manifest = triage::policy::list_folder(folder.path());
    manifest.name = "pair";
    manifest.version = version;
    fake::rename_save(folder / "bundle.json", manifest.text());
  };
  pack("1", "add 1");
  Runtime runtime;
  const Bundle bundle = runtime.load_bundle(folder.path());
  const Policy a = bundle.policy("a");
  pack("2", "add 2");
  CHECK(bundle.reload() == Reload::swapped);
  first(a);
  pack("3", "hook\nadd 3");
  {
    StandsStill still;
    auto reload = std::async(std::launch::async, [&] { return bundle.reload(); });
    still.wait_until_inside();
    bundle.rollback(1);
    CHECK(first(a) == 1.0f);
    still.go_on();
    CHECK(reload.get() == Reload::refused);
  }
  CHECK(first(a) == 1.0f);
  CHECK(bundle.version().version == "1");
  pack("4", "add 4");
  CHECK(bundle.reload() == Reload::swapped);
  CHECK(first(a) == 4.0f);
}

TEST_CASE("a decision that overtook a reload holds over a restart, until the file changes") {
  const fake::Folder cache;
  Scene scene({.cache_dir = cache.path()});
  CHECK(scene.decide_during("add 3", [&] { scene.policy.rollback(1); }) == Reload::refused);
  Runtime after({.cache_dir = cache.path()});
  const Policy policy = after.load(scene.file);
  CHECK(first(policy) == 1.0f);
  scene.save("add 4");
  CHECK(policy.reload() == Reload::swapped);
  CHECK(first(policy) == 4.0f);
}

}  // namespace overtaking
