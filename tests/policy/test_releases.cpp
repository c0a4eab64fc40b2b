// What random lives (test_lives.cpp) found, each as short as it can be told.
#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/bundle.h>
#include <triage/runtime.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "runtime/policy/bundles/manifest.h"

namespace releases {  // names differ from those of its neighbours, which are compiled together
namespace {

namespace fs = std::filesystem;
using triage::Reload;
using triage::Runtime;
using triage::test::first;

/// p.fake, alone or in a bundle with another policy.
struct Scene {
  void save(const char* source) const {
    fake::write(file, source);
    fake::write(dir / "other.fake", "add 100");
    triage::policy::Manifest manifest = triage::policy::list_folder(dir);
    manifest.name = "pair";
    manifest.version = std::to_string(std::hash<std::string>()(source));
    fake::rename_save(dir / "bundle.json", manifest.text());
  }
  void start(bool is_bundle, const fs::path& cache) {
    policy = {};
    bundle = {};
    runtime.emplace(triage::RuntimeOptions{.cache_dir = cache});
    if (is_bundle) bundle = runtime->load_bundle(dir);
    policy = is_bundle ? bundle.policy("p") : runtime->load(file);
  }
  Reload reload() const { return bundle ? bundle.reload() : policy.reload(); }
  void rollback(int number) const { bundle ? bundle.rollback(number) : policy.rollback(number); }
  void pin(int number) const { bundle ? bundle.pin(number) : policy.pin(number); }
  Reload unpin() const { return bundle ? bundle.unpin() : policy.unpin(); }
  bool pinned() const { return bundle ? bundle.version().pinned : policy.version().pinned; }
  bool has_error() const { return policy.version().last_error || (bundle && bundle.version().last_error); }
  fake::Folder folder, caches;
  const fs::path dir = folder.path(), file = folder / "p.fake";
  std::optional<Runtime> runtime;
  triage::Bundle bundle;
  triage::Policy policy;
};

}  // namespace

TEST_CASE("a process that ends while unpin loads what is on the disk starts with the pin") {
  for (const bool is_bundle : {false, true}) {
    CAPTURE(is_bundle);
    Scene scene;
    scene.save("add 1");
    scene.start(is_bundle, scene.caches / "now");
    scene.save("add 2");
    CHECK(scene.reload() == Reload::swapped);
    scene.pin(1);
    scene.save("hook\ninputs a b\nadd 3");
    fake::when_loaded = [&] {
      if (!fs::exists(scene.caches / "then"))
        fs::copy(scene.caches / "now", scene.caches / "then", fs::copy_options::recursive);
    };
    CHECK(scene.unpin() == Reload::refused);
    fake::when_loaded = nullptr;
    CHECK_FALSE(scene.pinned());
    scene.start(is_bundle, scene.caches / "then");
    CHECK(scene.pinned());
    CHECK(first(scene.policy) == 1.0f);
    scene.start(is_bundle, scene.caches / "now");
    CHECK_FALSE(scene.pinned());
    CHECK(first(scene.policy) == 1.0f);
    CHECK(scene.has_error());
  }
}

TEST_CASE("a rollback to a version that is not there changes nothing: a bundle is still completed") {
  Scene scene;
  scene.save("add 1");
  scene.start(/*is_bundle=*/true, {});
  scene.save("add 2");
  fs::remove(scene.file);
  CHECK(scene.reload() == Reload::refused);
  CHECK_THROWS_AS(scene.rollback(99), triage::InputError);
  fake::write(scene.file, "add 2");
  auto watch = scene.runtime->watch(scene.dir, {.debounce = std::chrono::milliseconds(1)});
  watch.rescan();
  CHECK(first(scene.policy) == 2.0f);
}

TEST_CASE("a rollback to what the disk has leaves no error") {
  for (const bool is_bundle : {false, true}) {
    CAPTURE(is_bundle);
    Scene scene;
    scene.save("add 1");
    scene.start(is_bundle, {});
    CHECK(first(scene.policy) == 1.0f);
    scene.save("raise_above 5\nadd 2");
    CHECK(scene.reload() == Reload::swapped);
    CHECK(first(scene.policy, 9.0f) == 10.0f);
    CHECK(scene.has_error());
    scene.rollback(1);
    CHECK(scene.has_error());
    scene.rollback(2);
    CHECK_FALSE(scene.has_error());
    fs::remove(scene.dir / (is_bundle ? "bundle.json" : "p.fake"));
    CHECK(scene.reload() == Reload::refused);
    scene.rollback(2);
    CHECK(scene.has_error());
  }
}

}  // namespace releases
