// Policies that go live together.
#include "tests/logs.h"
#include "tests/mutation.h"
#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/bundle.h>
#include <triage/error.h>
#include <triage/statistics.h>
#include <triage/version.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "runtime/policy/bundles/manifest.h"

namespace fs = std::filesystem;
using triage::Bundle;
using triage::Policy;
using triage::Reload;
using triage::Runtime;
using triage::RuntimeOptions;
using triage::WatchEvent;
using triage::test::first;
using triage::test::says;

namespace {

std::string message(const Bundle& bundle) {
  const auto failure = bundle.version().last_error;
  return failure ? failure->message : "";
}

using Sources = std::map<std::string, std::string>;

/// A bundle of the policies a.fake and b.fake, which read the table `n`.
struct Scene {
  explicit Scene(RuntimeOptions given = {}) : options(std::move(given)) {
    write({{"a.fake", "add 1"}, {"b.fake", "add 1"}});
    pack("1");
    start();
  }
  void start() {
    a = b = {};
    bundle = {};
    runtime.reset();
    text.str("");
    options.log = triage::test::log_to(text);
    runtime.emplace(options);
    load();
  }
  void load() {
    bundle = runtime->load_bundle(dir);
    a = bundle.policy("a");
    b = bundle.policy("b");
  }
  void write(const Sources& sources) const {
    for (const auto& [name, source] : sources) {
      fs::create_directories((dir / name).parent_path());
      fake::write(dir / name, source);
    }
  }
  /// Writes bundle.json last, as is asked for.
  void pack(const std::string& version, const std::string& needs = "") const {
    triage::policy::Manifest manifest = triage::policy::list_folder(dir);
    manifest.name = "pair";
    manifest.version = version;
    manifest.triage = needs;
    fake::rename_save(dir / "bundle.json", manifest.text());
  }
  Reload reload(const Sources& sources, const std::string& version) {
    write(sources);
    pack(version);
    return bundle.reload();
  }
  bool gives(float of_a, float of_b) const { return first(a) == of_a && first(b) == of_b; }

  fake::Folder folder;
  const fs::path dir = folder / "pair";
  RuntimeOptions options;
  std::ostringstream text;
  std::optional<Runtime> runtime;
  Bundle bundle;
  Policy a, b;
};

}  // namespace

TEST_CASE("a bundle loads all its policies, which share its version") {
  Scene scene;
  CHECK(scene.bundle.name() == "pair");
  CHECK(scene.bundle.policies() == std::vector<std::string>{"a", "b"});
  CHECK(scene.gives(1, 1));
  const triage::BundleVersion version = scene.bundle.version();
  CHECK(version.number == 1);
  CHECK(version.version == "1");
  CHECK(version.sha256.size() == 64);
  CHECK(version.live);
  CHECK_FALSE(version.on_trial);
  CHECK((version.policies == std::vector<std::pair<std::string, int>>{{"a", 1}, {"b", 1}}));
  CHECK(scene.runtime->policies().size() == 2);
  CHECK(says(fake::message_of([&] { scene.bundle.policy("c"); }), "bundle 'pair' has no policy 'c'; it has a, b"));
  CHECK(says(fake::message_of([] { Bundle().name(); }), "get one from Runtime::load_bundle"));
  CHECK((scene.bundle.reload() == Reload::unchanged));
}

TEST_CASE("metrics tell which version of a bundle is live") {
  Scene scene;
  const auto has = [&](int number, bool live) {
    return says(triage::metrics_text(*scene.runtime), "triage_bundle_live{bundle=\"pair\",path=\"" +
                                                          scene.dir.string() + "\",number=\"" + std::to_string(number) +
                                                          "\",version=\"" + std::to_string(number) + "\",sha256=\"") &&
           says(triage::metrics_text(*scene.runtime),
                scene.bundle.versions().at(static_cast<size_t>(number) - 1).sha256.substr(0, 16) + "\"} " +
                    (live ? "1\n" : "0\n"));
  };
  CHECK(has(1, true));
  REQUIRE((scene.reload({{"a.fake", "add 2"}}, "2") == Reload::swapped));
  CHECK(has(1, false));
  CHECK(has(2, true));
}

TEST_CASE("a new version of a bundle goes live as a whole, and what did not change keeps its version") {
  Scene scene;
  CHECK((scene.reload({{"a.fake", "add 2"}, {"b.fake", "add 2"}}, "2") == Reload::swapped));
  CHECK(scene.gives(2, 2));
  CHECK(scene.bundle.version().on_trial);
  CHECK((scene.reload({{"b.fake", "add 3"}}, "3") == Reload::swapped));
  CHECK(scene.gives(2, 3));
  CHECK((scene.bundle.version().policies == std::vector<std::pair<std::string, int>>{{"a", 2}, {"b", 3}}));
  CHECK((scene.reload({{"c.fake", "add 9"}}, "4") == Reload::swapped));
  CHECK(first(scene.bundle.policy("c")) == 9.0f);
  CHECK(scene.runtime->policies().size() == 3);
  CHECK(scene.bundle.versions().size() == 4);
}

TEST_CASE("a bundle of which one policy is refused stays as it is, and says why") {
  Scene scene;
  scene.gives(1, 1);
  const std::map<std::string, std::string> bad = {{"broken on purpose", "on purpose"},
                                                  {"add 2\ntest t failed", "fails its own tests"},
                                                  {"raise it", "raised"},
                                                  {"double", "the type of output"},
                                                  {"inputs q\nadd 1", "the inputs from (z) to (q)"}};
  for (const auto& [source, why] : bad) {
    CHECK((scene.reload({{"a.fake", "add 2"}, {"b.fake", source}}, "2") == Reload::refused));
    CHECK_MESSAGE(says(message(scene.bundle), why), message(scene.bundle));
    CHECK(scene.gives(1, 1));
    CHECK(scene.bundle.version().version == "1");
    CHECK(says(scene.b.version().last_error->message, why));
    CHECK_FALSE(scene.a.version().last_error);
  }
  CHECK((scene.reload({{"b.fake", "add 2"}}, "2") == Reload::swapped));
  CHECK(scene.gives(2, 2));
  CHECK(message(scene.bundle).empty());
  CHECK_FALSE(scene.b.version().last_error);
  CHECK(scene.a.version().number == 2);  // a refused version takes no number
}

TEST_CASE("files that are not those of bundle.json refuse a bundle by name") {
  Scene scene;
  const auto refused = [&](const std::string& file, const std::string& why) {
    CHECK((scene.bundle.reload() == Reload::refused));
    CHECK_MESSAGE((says(message(scene.bundle), file) && says(message(scene.bundle), why)), message(scene.bundle));
    CHECK(scene.gives(1, 1));
  };
  fake::write(scene.dir / "a.fake", "add 2");
  refused("a.fake", "has the SHA-256");
  fs::remove(scene.dir / "a.fake");
  refused("a.fake", "there is no such file");
  scene.write({{"a.fake", "add 1"}, {"lib/m.fake", "add 1"}});
  refused("lib/m.fake", "does not list");
  fs::remove_all(scene.dir / "lib");
  CHECK((scene.bundle.reload() == Reload::unchanged));
  CHECK(message(scene.bundle).empty());
  scene.write({{"n", "5"}, {"a.fake", "add_file n"}});
  scene.pack("2");  // `n` has no extension of a table
  refused("n", "bundle.json does not list it");
  scene.pack("3", ">=99");
  refused("bundle.json", "needs triage >=99, and this is triage " TRIAGE_VERSION);
  scene.pack("3", "new");
  refused("bundle.json", "got \"new\"");
  fs::remove(scene.dir / "a.fake");
  scene.pack("3");
  refused("bundle.json", "changes the policies: 'a' is gone");
  CHECK_THROWS_AS(scene.runtime->load_bundle(scene.folder / "nowhere"), triage::FileError);
  CHECK_THROWS_AS(scene.runtime->load_bundle(scene.folder.path()), triage::FileError);
}

TEST_CASE("bundle.json is read strictly") {
  const std::string hash(64, 'a');
  const std::string ok = R"("name": "n", "version": "1", "policies": {"a.fake": ")" + hash + "\"}";
  const auto refusal = [](const std::string& text) {
    return fake::message_of([&] { triage::policy::parse_manifest(text, "bundle.json"); });
  };
  CHECK(refusal("{" + ok + "}").empty());
  const std::map<std::string, std::string> wrong = {
      {"", "is not JSON"},
      {"[]", "expected a JSON object"},
      {R"({"version": "1"})", "expected \"name\" to be a text"},
      {R"({"name": "n", "version": 1})", "expected \"version\" to be a text"},
      {R"({"name": "n", "version": "1"})", "it lists no policies"},
      {"{" + ok + R"(, "modules": ["lib/a.lua"]})", "expected \"modules\" to be an object"},
      {"{" + ok + R"(, "modules": {"../a.lua": ")" + hash + "\"}}", "one with '..'"},
      {"{" + ok + R"(, "modules": {"/a.lua": ")" + hash + "\"}}", "an absolute path"},
      {"{" + ok + R"(, "modules": {"lib/a.lua": "abc"}})", "expected the SHA-256 of 'lib/a.lua'"},
      {"{" + ok + R"(, "tables": {"a.fake": ")" + hash + "\"}}", "it lists a file twice"},
      {"{" + ok + R"(, "policies": {}})", "has the name \"policies\" twice"},
      {"{" + ok + R"(, "note": "x"})", "there is no field \"note\""},
      {R"({"name": "n", "version": "1", "policies": {"a.fake": ")" + hash + R"(", "a.lua": ")" + hash + "\"}}",
       "two policies with the name 'a'"}};
  for (const auto& one : wrong) CHECK_MESSAGE(says(refusal(one.first), one.second), refusal(one.first));
  for (const char* range : {"", ">=0.1", ">=0.1, <2", "=0.1.0", ">0, <=0.1.0"})
    CHECK(triage::policy::fits_range(range, "0.1.0"));
  for (const char* range : {">0.1", "<0.1.0", ">=0.1, <0.1", "=1"})
    CHECK_FALSE(triage::policy::fits_range(range, "0.1.0"));
  for (const char* range : {"0.1", ">=", ">=1.x", ">=1.2.3.4", "~1", "<2, new"})
    CHECK_THROWS_AS(triage::policy::fits_range(range, "0.1.0"), triage::InputError);
}

TEST_CASE("a bundle.json that was changed at random is refused with an error, or read as what it says") {
  const std::string hash(64, '0');
  const std::string whole =
      triage::policy::Manifest{
          "n", "1", ">=0.1, <2", {{"a.fake", hash}, {"x/b.fake", hash}}, {{"lib/m.fake", hash}}, {{"t.npy", hash}}}
          .text();
  triage::test::Mutator mutator({whole, R"({"name":"n","version":"1","policies":{"a.lua":")" + hash + "\"}}"});
  int read = 0, refused = 0;
  for (int i = 0; i < triage::test::mutations(3000); ++i) {
    const std::string text = mutator.next();
    try {
      const auto manifest = triage::policy::parse_manifest(text, "bundle.json");
      ++read;
      CHECK(triage::policy::parse_manifest(manifest.text(), "bundle.json").files() == manifest.files());
      for (const auto& file : manifest.files()) triage::policy::check_name(file.first);
    } catch (const triage::FileError&) {
      ++refused;
    }
  }
  CHECK(read > 0);
  CHECK(refused > 0);
}

TEST_CASE("policies of a bundle read its modules and tables, from their own folder, as they were verified") {
  std::vector<std::string> seen;
  RuntimeOptions options;
  std::string banned;
  options.verify = [&](const fs::path& path, std::string_view bytes) {
    seen.push_back(path.filename().string());
    if (!banned.empty() && says(std::string(bytes), banned)) throw std::runtime_error("not signed");
  };
  Scene scene(options);
  CHECK(seen == std::vector<std::string>{"bundle.json", "a.fake", "b.fake"});
  scene.write({{"x/n.npy", "7"}, {"x/c.fake", "add_file n.npy"}, {"n.npy", "8"}, {"a.fake", "add_file n.npy"}});
  scene.pack("2");
  seen.clear();
  CHECK((scene.bundle.reload() == Reload::swapped));
  CHECK(seen == std::vector<std::string>{"bundle.json", "a.fake", "b.fake", "n.npy", "c.fake", "n.npy"});
  CHECK(scene.gives(8, 1));
  CHECK(first(scene.bundle.policy("x/c")) == 7.0f);
  CHECK((scene.reload({{"n.npy", "9"}}, "3") == Reload::swapped));  // a table alone is a new version of its policy
  CHECK(scene.gives(9, 1));
  CHECK((scene.bundle.version().policies == std::vector<std::pair<std::string, int>>{{"a", 3}, {"b", 1}, {"x/c", 1}}));
  banned = "10";
  CHECK((scene.reload({{"n.npy", "10"}}, "4") == Reload::refused));
  CHECK_MESSAGE(says(message(scene.bundle), "not signed"), message(scene.bundle));
  CHECK(scene.gives(9, 1));
}

TEST_CASE("a policy of a bundle that fails on trial takes all of it back") {
  RuntimeOptions options;
  Scene scene(options);
  std::vector<WatchEvent> events;
  std::mutex mutex;
  triage::Watch watch = scene.runtime->watch(scene.dir, {.on_event = [&](const WatchEvent& event) {
                                               const std::lock_guard lock(mutex);
                                               events.push_back(event);
                                             }});
  scene.gives(1, 1);
  CHECK((scene.reload({{"a.fake", "add 2\nraise_above 5"}, {"b.fake", "add 2"}}, "2") == Reload::swapped));
  CHECK(scene.gives(2, 2));
  CHECK(first(scene.a, 10) == 11.0f);  // the version before answers
  CHECK(scene.gives(1, 1));
  const triage::BundleVersion now = scene.bundle.version();
  CHECK(now.number == 1);
  CHECK(says(now.last_error->message, "too large"));
  CHECK(scene.bundle.versions().at(1).taken_back);
  CHECK(says(scene.b.version().last_error->message, "too large"));
  CHECK_FALSE(scene.b.versions().at(1).taken_back);  // it was not at fault
  CHECK(fake::eventually([&] {
    const std::lock_guard lock(mutex);
    return std::any_of(events.begin(), events.end(), [&](const WatchEvent& event) {
      return event.kind == WatchEvent::Kind::reverted && event.version == 1 && event.path == scene.dir.string();
    });
  }));
  watch.rescan();
  CHECK(scene.gives(1, 1));  // what was taken back is not taken up again
  CHECK((scene.reload({{"a.fake", "add 3"}}, "3") == Reload::swapped));
  CHECK(scene.gives(3, 2));
}

TEST_CASE("a bundle goes back past versions that failed, and after its trial by failures in a row") {
  RuntimeOptions options;
  options.trial_calls = 2;
  options.trial_seconds = 0;
  options.failures_to_revert = 2;
  Scene scene(options);
  scene.gives(1, 1);
  const auto settle = [&] {
    for (int i = 0; i < 3; ++i) first(scene.a), first(scene.b);
    CHECK_FALSE(scene.bundle.version().on_trial);
  };
  CHECK((scene.reload({{"a.fake", "add 2\nraise_above 5"}, {"b.fake", "add 2"}}, "2") == Reload::swapped));
  settle();
  CHECK((scene.reload({{"b.fake", "add 3"}}, "3") == Reload::swapped));  // with the same version of `a`
  settle();
  CHECK(scene.gives(2, 3));
  CHECK_THROWS_AS(first(scene.a, 10), triage::PolicyError);
  CHECK(first(scene.a, 10) == 11.0f);
  CHECK(scene.bundle.version().number == 1);  // not version 2, of which `a` is a part
  CHECK(scene.gives(1, 1));
}

TEST_CASE("a bundle that fails goes back to the version that was live before, not to one that was rolled back from") {
  RuntimeOptions options;
  options.trial_calls = 2;
  options.trial_seconds = 0;
  Scene scene(options);
  const auto settle = [&](float gives) {
    for (int i = 0; i < 4; ++i) CHECK(scene.gives(gives, gives));
    CHECK_FALSE(scene.bundle.version().on_trial);
  };
  CHECK((scene.reload({{"a.fake", "add 2"}, {"b.fake", "add 2"}}, "2") == Reload::swapped));
  settle(2);
  CHECK((scene.reload({{"a.fake", "add 3"}, {"b.fake", "add 3"}}, "3") == Reload::swapped));
  settle(3);
  scene.bundle.rollback(2);
  CHECK((scene.reload({{"a.fake", "add 4\nraise_above 5"}, {"b.fake", "add 4"}}, "4") == Reload::swapped));
  CHECK(first(scene.a, 10) == 12.0f);
  CHECK(scene.bundle.version().number == 2);
  CHECK(scene.gives(2, 2));
}

TEST_CASE("a bundle is rolled back and pinned as a whole, and its policies are not") {
  Scene scene;
  CHECK((scene.reload({{"a.fake", "add 2"}, {"b.fake", "add 2"}}, "2") == Reload::swapped));
  scene.bundle.rollback(1);
  CHECK(scene.gives(1, 1));
  CHECK(scene.bundle.version().number == 1);
  scene.bundle.pin(2);
  CHECK(scene.gives(2, 2));
  CHECK(scene.bundle.version().pinned);
  CHECK(scene.a.version().pinned);
  CHECK((scene.reload({{"a.fake", "add 3"}}, "3") == Reload::unchanged));
  CHECK(scene.gives(2, 2));
  CHECK((scene.bundle.unpin() == Reload::swapped));
  CHECK(scene.gives(3, 2));
  CHECK(says(fake::message_of([&] { scene.bundle.rollback(9); }), "has no version 9 to go back to; it keeps 1, 2, 3"));
  const std::vector<std::function<void()>> alone = {
      [&] { scene.a.reload(); },         [&] { scene.a.rollback(1); },      [&] { scene.a.pin(1); },
      [&] { scene.a.unpin(); },          [&] { scene.a.replace("add 1"); }, [&] { scene.a.canary_source("add 1"); },
      [&] { scene.a.canary("a.fake"); }, [&] { scene.a.promote(); }};
  for (const auto& call : alone) CHECK(says(fake::message_of(call), "belongs to the bundle 'pair'"));
  CHECK(scene.gives(3, 2));
}

TEST_CASE("a shadow beside a policy of a bundle goes on over its reloads") {
  Scene scene;
  scene.a.shadow_source("add 5", {.share = 1});
  CHECK((scene.reload({{"a.fake", "add 2"}}, "2") == Reload::swapped));
  CHECK(scene.gives(2, 1));
  CHECK((scene.a.candidate()->state == triage::CandidateState::running));
  scene.a.end_candidate();
}

TEST_CASE("a Watch reloads a bundle when bundle.json changes, and not before") {
  Scene scene;
  std::vector<WatchEvent> events;
  std::mutex mutex;
  for (const int poll_ms : {0, 5}) {
    const std::string next = poll_ms ? "add 3" : "add 2";
    triage::Watch watch = scene.runtime->watch(scene.dir, {.debounce = std::chrono::milliseconds(2),
                                                           .poll_interval = std::chrono::milliseconds(poll_ms),
                                                           .on_event = [&](const WatchEvent& event) {
                                                             const std::lock_guard lock(mutex);
                                                             events.push_back(event);
                                                           }});
    const int before = scene.bundle.version().number;
    scene.write({{"a.fake", next}, {"b.fake", next}, {"new.fake", "add 1"}});
    watch.rescan();
    watch.rescan();
    CHECK(scene.bundle.version().number == before);
    CHECK(message(scene.bundle).empty());
    scene.pack(next);
    CHECK(fake::eventually([&] { return scene.bundle.version().number == before + 1; }));
    watch.rescan();
    const std::lock_guard lock(mutex);
    REQUIRE(events.size() == 1);
    CHECK((events[0].kind == WatchEvent::Kind::reloaded));
    CHECK(events[0].path == scene.dir.string());
    CHECK(events[0].version == before + 1);
    events.clear();
  }
  CHECK(scene.gives(3, 3));
}

TEST_CASE("a bundle follows a link to its folder that is switched, and a folder that is replaced") {
  Scene scene;
  const fs::path link = scene.folder / "current", next = scene.folder / "next";
  fs::create_directory_symlink("pair", link);
  const Bundle bundle = scene.runtime->load_bundle(link);
  triage::Watch watch = scene.runtime->watch(link, {.debounce = std::chrono::milliseconds(2)});
  fs::copy(scene.dir, next, fs::copy_options::recursive);
  const auto pack = [](const fs::path& dir, const std::string& version) {
    auto manifest = triage::policy::list_folder(dir);
    manifest.name = "pair";
    manifest.version = version;
    fake::write(dir / "bundle.json", manifest.text());
  };
  fake::write(next / "a.fake", "add 2");
  pack(next, "2");
  fs::create_directory_symlink("next", scene.folder / "switched");
  fs::rename(scene.folder / "switched", link);
  watch.rescan();
  CHECK(bundle.version().version == "2");
  CHECK(first(bundle.policy("a")) == 2.0f);
  fs::rename(next, scene.folder / "old");
  watch.rescan();
  CHECK(says(bundle.version().last_error->message, "was deleted, or cannot be read"));
  fs::copy(scene.folder / "old", scene.folder / "draft", fs::copy_options::recursive);
  fake::write(scene.folder / "draft" / "a.fake", "add 3");
  pack(scene.folder / "draft", "3");
  fs::rename(scene.folder / "draft", next);
  watch.rescan();
  CHECK(first(bundle.policy("a")) == 3.0f);
  CHECK_FALSE(bundle.version().last_error);
}

TEST_CASE("a bundle that is broken, or was pinned, starts with what was live before, whole") {
  RuntimeOptions options;
  fake::Folder cache;
  options.cache_dir = cache.path();
  Scene scene(options);
  CHECK((scene.reload({{"a.fake", "add 2"}, {"b.fake", "add 2"}}, "2") == Reload::swapped));
  CHECK(scene.gives(2, 2));
  fake::write(scene.dir / "a.fake", "add 3");  // not what is listed
  scene.start();
  CHECK(scene.gives(2, 2));
  CHECK(says(message(scene.bundle), "has the SHA-256"));
  CHECK(says(scene.text.str(), "running its last good version instead"));
  scene.pack("3");
  CHECK((scene.bundle.reload() == Reload::swapped));
  CHECK(scene.gives(3, 2));
  scene.bundle.pin(1);
  fs::remove(scene.dir / "bundle.json");
  scene.start();
  CHECK(scene.gives(2, 2));  // number 1 after the restart before
  CHECK(scene.bundle.version().pinned);
  CHECK(says(scene.text.str(), "what was pinned before this start"));
  scene.pack("3");
  CHECK((scene.bundle.unpin() == Reload::swapped));
  CHECK(scene.gives(3, 2));
  scene.bundle.rollback(1);
  scene.start();
  CHECK(scene.gives(2, 2));
  CHECK_FALSE(scene.bundle.version().pinned);
  CHECK(says(scene.text.str(), "what was rolled back to before this start"));
  scene.write({{"b.fake", "add 4"}});
  scene.pack("4");
  scene.start();
  CHECK(scene.gives(3, 4));
}

TEST_CASE("handles of policies keep their bundle, also after its Runtime, and nothing is left behind") {
  const int before = fake::alive;
  {
    Scene scene;
    scene.bundle = {};
    CHECK((scene.gives(1, 1)));
    scene.runtime.reset();
    CHECK((scene.gives(1, 1)));
    scene.a = {};
    CHECK(first(scene.b) == 1.0f);
  }
  CHECK(fake::eventually([&] { return fake::alive == before; }));
}

TEST_CASE("threads call two policies of a bundle while it is reloaded: no call fails, and both are of one version") {
  RuntimeOptions options;
  options.trial_calls = 20;
  options.trial_seconds = 0;
  options.failures_to_revert = 1;
  Scene scene(options);
  scene.gives(1, 1);
  std::atomic<bool> stop{false};
  std::atomic<int> failed{0}, calls{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      const at::Tensor z = at::zeros({4, 2});
      const Policy &one = i % 2 ? scene.a : scene.b, &other = i % 2 ? scene.b : scene.a;
      while (!stop) {
        try {
          one.run({z});
          other.run({z});
          calls += 2;
        } catch (const std::exception&) {
          ++failed;
        }
      }
    });
  for (int round = 2; round < 60; ++round) {
    const std::string add = "add " + std::to_string(round);
    switch (round % 4) {
      case 0:
      case 1:
        CHECK((scene.reload({{"a.fake", add}, {"b.fake", add}}, std::to_string(round)) == Reload::swapped));
        CHECK(scene.gives(static_cast<float>(round), static_cast<float>(round)));
        break;
      case 2: {  // one of the two is broken
        const float live = first(scene.a);
        CHECK((scene.reload({{"a.fake", add}, {"b.fake", "broken"}}, std::to_string(round)) == Reload::refused));
        CHECK(scene.gives(live, live));
        break;
      }
      default: {  // one of the two fails on trial
        CHECK(fake::eventually([&] { return !scene.bundle.version().on_trial; }));
        const float live = first(scene.a);
        scene.reload({{"a.fake", add + "\nraise_above 5000"}, {"b.fake", add}}, std::to_string(round));
        CHECK(first(scene.a, 10000) == 10000 + live);
        CHECK(scene.gives(live, live));
      }
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
  CHECK(calls > 0);
}
