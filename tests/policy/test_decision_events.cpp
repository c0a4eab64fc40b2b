// Lines of the decision log for what happens to policies: which version went live and by what, what was refused, pins,
// candidates, params; and the sources that a cache_dir keeps for them.
#include "runtime/policy/files/kept_sources.h"
#include "tests/logs.h"
#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <triage/triage.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/policy/bundles/manifest.h"

using triage::DecisionLog;
using triage::DecisionLogOptions;
using triage::Policy;
using triage::Reload;
using triage::Runtime;
using triage::test::batch;
using triage::test::says;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr const char* first_source = "outputs z f\nparam limit 2\nadd 1\nflags";
constexpr const char* second_source = "outputs z f\nparam limit 2\nadd 2\nflags";
constexpr const char* failing_source = "outputs z f\nparam limit 2\nadd 3\nraise_above 8\nflags";

/// A policy file, a Runtime that may start again, and what its decision log says.
struct Scene {
  explicit Scene(DecisionLogOptions options = {}, bool cache = true) : has_cache(cache) {
    fake::write(file, first_source);
    options.on_line = [this](std::string_view line) {
      const std::lock_guard lock(mutex);
      all.push_back(Json::parse(line));
    };
    log = std::make_shared<DecisionLog>(options);
    start();
  }
  ~Scene() {
    policy = {};
    runtime.reset();
  }
  void start() {
    policy = {};
    runtime.reset();
    triage::RuntimeOptions options{.log = triage::test::no_log(), .decisions = log};
    if (has_cache) options.cache_dir = folder / "cache";
    options.trial_calls = 1;
    options.trial_seconds = 0;
    options.failures_to_revert = 1;
    runtime.emplace(options);
    policy = runtime->load(file);
  }
  Reload save(const char* source) {
    fake::write(file, source);
    return policy.reload();
  }
  /// Since the last time.
  std::vector<Json> events() {
    log->flush();
    const std::lock_guard lock(mutex);
    std::vector<Json> found;
    for (; read < all.size(); ++read)
      if (all[read].contains("event")) found.push_back(all[read]);
    return found;
  }
  /// The one of these; an error where there is another number.
  Json event() {
    const std::vector<Json> found = events();
    REQUIRE(found.size() == 1);
    return found[0];
  }

  fake::Folder folder;
  const fs::path file = folder / "p.fake";
  const bool has_cache;
  std::mutex mutex;
  std::vector<Json> all;
  size_t read = 0;
  std::shared_ptr<DecisionLog> log;
  std::optional<Runtime> runtime;
  Policy policy;
};

}  // namespace

TEST_CASE("a version that goes live has a line, with the one before it and the counts of that one") {
  Scene scene;
  const Json loaded = scene.event();
  CHECK(loaded["event"] == "live");
  CHECK(loaded["by"] == "load");
  CHECK(loaded["policy"] == "p");
  CHECK(loaded["path"] == scene.file.string());
  CHECK(loaded["version"] == 1);
  CHECK(loaded["hash"] == scene.policy.version().hash);
  CHECK_FALSE(loaded.contains("previous_version"));
  CHECK_FALSE(loaded.contains("reason"));
  CHECK(loaded["time"].get<std::string>().size() == 27);

  scene.policy.run({batch(8, 2)});
  scene.policy.run({batch(8, 0)});
  REQUIRE(scene.save(second_source) == Reload::swapped);
  const Json swapped = scene.event();
  CHECK(swapped["by"] == "disk");
  CHECK(swapped["version"] == 2);
  CHECK(swapped["previous_version"] == 1);
  CHECK(swapped["previous_hash"] == loaded["hash"]);
  CHECK(swapped["previous_totals"] == Json({{"samples", 16}, {"flagged", 2}, {"repaired", 2}}));
  REQUIRE(scene.policy.replace("outputs z f\nparam limit 2\nadd 4\nflags") == Reload::swapped);
  CHECK(scene.event()["by"] == "host");
}

TEST_CASE("a call's line has the totals of its version so far") {
  Scene scene;
  scene.policy.run({batch(8, 0)});
  scene.policy.run({batch(8, 3)});
  scene.log->flush();
  const Json line = scene.all.back();
  CHECK_FALSE(line.contains("event"));
  CHECK(line["totals"] == Json({{"samples", 16}, {"flagged", 3}, {"repaired", 3}}));
  CHECK(scene.log->counts().written == 1);  // of decisions
}

TEST_CASE("rollbacks, pins and their ends have lines") {
  Scene scene;
  REQUIRE(scene.save(second_source) == Reload::swapped);
  scene.events();
  scene.policy.rollback(1);
  const Json back = scene.event();
  CHECK(back["by"] == "rollback");
  CHECK(back["version"] == 1);
  CHECK(back["previous_version"] == 2);
  scene.policy.rollback(1);  // it is live
  CHECK(scene.events().empty());
  scene.policy.pin(2);
  const std::vector<Json> pinned = scene.events();
  REQUIRE(pinned.size() == 2);
  CHECK(pinned[0]["by"] == "pin");
  CHECK(pinned[1]["event"] == "pinned");
  CHECK(pinned[1]["version"] == 2);
  scene.policy.pin(2);
  CHECK(scene.event()["event"] == "pinned");
  scene.policy.unpin();
  CHECK(scene.event()["event"] == "unpinned");  // the file has what is live
  scene.policy.unpin();
  CHECK(scene.events().empty());
}

TEST_CASE("what is refused has a line with the error, once, and the version that stays live") {
  Scene scene;
  scene.events();
  REQUIRE(scene.save("broken on purpose") == Reload::refused);
  const Json refused = scene.event();
  CHECK(refused["event"] == "refused");
  CHECK(refused["by"] == "disk");
  CHECK(refused["version"] == 1);
  CHECK(says(refused["reason"], "on purpose"));
  REQUIRE(scene.policy.replace("broken by the host") == Reload::refused);
  CHECK(scene.event()["by"] == "host");
  CHECK_THROWS(scene.policy.canary_source("broken as a candidate"));
  CHECK(scene.event()["by"] == "candidate");
  fs::remove(scene.file);
  scene.policy.reload();
  CHECK(says(scene.event()["reason"], "was deleted"));
}

TEST_CASE("a version that fails its calls has a line when the one before it is live again") {
  Scene scene;
  scene.policy.run({batch(4, 0)});
  REQUIRE(scene.save(failing_source) == Reload::swapped);
  scene.events();
  scene.policy.run({batch(4, 0) * 9});
  const Json back = scene.event();
  CHECK(back["event"] == "live");
  CHECK(back["by"] == "failures");
  CHECK(back["version"] == 1);
  CHECK(back["previous_version"] == 2);
  CHECK(says(back["reason"], "too large"));
}

TEST_CASE("candidates have lines for their beginning and their end") {
  Scene scene;
  scene.events();
  scene.policy.canary_source(second_source, {.share = 0.25, .promote_after = 0});
  const Json started = scene.event();
  CHECK(started["event"] == "candidate_started");
  CHECK(started["version"] == 2);
  CHECK(started["kind"] == "canary");
  CHECK(started["share"] == 0.25);
  scene.policy.end_candidate();
  CHECK(scene.event()["event"] == "candidate_ended");
  scene.policy.shadow_source(failing_source);
  scene.policy.promote();
  const std::vector<Json> promoted = scene.events();
  REQUIRE(promoted.size() == 3);
  CHECK(promoted[0]["kind"] == "shadow");
  CHECK(promoted[1]["event"] == "candidate_promoted");
  CHECK(promoted[1]["reason"] == "by the host");
  CHECK(promoted[2]["event"] == "live");
  CHECK(promoted[2]["by"] == "promotion");
  CHECK(promoted[2]["version"] == 3);
}

TEST_CASE("a param that is set has a line, unless it has the value already") {
  Scene scene;
  scene.events();
  scene.policy.set_param("limit", 3.5);
  const Json set = scene.event();
  CHECK(set["event"] == "param");
  CHECK(set["param"] == "limit");
  CHECK(set["value"] == "3.5");
  CHECK_FALSE(set.contains("previous_value"));
  scene.policy.set_param("limit", 3.5);
  CHECK(scene.events().empty());
  scene.policy.set_param("limit", 4);
  CHECK(scene.event()["previous_value"] == "3.5");
  CHECK_THROWS_AS(scene.policy.set_param("none", 1), triage::InputError);
  CHECK(scene.events().empty());
}

TEST_CASE("a start says whether it took the file or what was kept") {
  Scene scene;
  REQUIRE(scene.save(second_source) == Reload::swapped);
  scene.policy.rollback(1);
  scene.events();
  scene.start();
  CHECK(scene.event()["by"] == "restart");
  REQUIRE(scene.save(failing_source) == Reload::swapped);
  scene.policy.run({batch(4, 0)});
  scene.events();
  scene.start();
  CHECK(scene.event()["by"] == "load");
  fake::write(scene.file, "broken on purpose");
  scene.start();
  const std::vector<Json> kept = scene.events();
  REQUIRE(kept.size() == 2);
  CHECK(kept[0]["by"] == "restart");
  CHECK(kept[1]["event"] == "refused");
}

TEST_CASE("the policies of a bundle have lines of their own, with its version") {
  fake::Folder folder;
  const fs::path dir = folder / "pair";
  const auto pack = [&](const std::string& a, const std::string& version) {
    fs::create_directories(dir);
    fake::write(dir / "a.fake", a);
    fake::write(dir / "b.fake", "add 1");
    triage::policy::Manifest manifest = triage::policy::list_folder(dir);
    manifest.name = "pair";
    manifest.version = version;
    fake::rename_save(dir / "bundle.json", manifest.text());
  };
  pack("add 1", "1");
  std::vector<Json> lines;
  const auto log = std::make_shared<DecisionLog>(
      DecisionLogOptions{.on_line = [&](std::string_view line) { lines.push_back(Json::parse(line)); }});
  Runtime runtime({.log = triage::test::no_log(), .decisions = log});
  const triage::Bundle bundle = runtime.load_bundle(dir);
  log->flush();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["policy"] == "a");
  CHECK(lines[1]["policy"] == "b");
  CHECK(lines[1]["bundle"] == "pair");
  CHECK(lines[1]["bundle_version"] == 1);
  pack("add 2", "2");
  REQUIRE(bundle.reload() == Reload::swapped);
  log->flush();
  REQUIRE(lines.size() == 3);  // b is what it was
  CHECK(lines[2]["policy"] == "a");
  CHECK(lines[2]["version"] == 2);
  CHECK(lines[2]["bundle_version"] == 2);
  bundle.pin(1);
  log->flush();
  REQUIRE(lines.size() == 5);
  CHECK(lines[3]["by"] == "pin");
  CHECK(lines[4]["event"] == "pinned");
  CHECK(lines[4]["bundle"] == "pair");
  CHECK(lines[4]["bundle_version"] == 1);
  CHECK_FALSE(lines[4].contains("policy"));
}

TEST_CASE("a cache_dir keeps the sources that lines name, and the oldest of too many goes") {
  using triage::policy::KeptSources;
  Scene scene;
  const Json loaded = scene.event();
  const fs::path kept = loaded["kept"].get<std::string>();
  CHECK(kept == scene.folder / "cache/sources" / ("p-" + loaded["hash"].get<std::string>() + ".fake"));
  CHECK(fake::read(kept) == first_source);
  CHECK((fs::status(kept).permissions() & fs::perms::others_all) == fs::perms::none);
  fake::write(scene.folder / "n", "5");
  REQUIRE(scene.save("outputs z f\nparam limit 2\nadd_file n\nflags") == Reload::swapped);
  const Json reading = scene.event();
  const auto contents = triage::policy::read_kept_source(reading["kept"].get<std::string>(), reading["hash"]);
  REQUIRE(contents.has_value());
  CHECK(contents->files.count("n") == 1);
  CHECK_FALSE(triage::policy::read_kept_source(kept, "0123456789abcdef").has_value());
  scene.policy.rollback(1);
  const KeptSources sources(scene.folder / "cache");
  for (size_t i = 0; i + 1 < KeptSources::most; ++i)
    CHECK(sources.keep("q/p.fake", fmt::format("{:016x}", i), {"x"}).trouble.empty());
  CHECK(fs::exists(kept));  // it was live after the other one
  CHECK_FALSE(fs::exists(reading["kept"].get<std::string>()));
  CHECK(sources.keep("q/other.fake", "0", {"x"}).trouble.empty());
  CHECK(fs::exists(kept));
  fs::permissions(scene.folder / "cache/sources", fs::perms::all);
  CHECK(says(sources.keep("p.fake", "0123456789abcdef", {"x"}).trouble, "others may write to"));
  Scene without({}, /*cache=*/false);
  CHECK_FALSE(without.event().contains("kept"));
}

TEST_CASE("rules for fields hold for what says the same in lines of policies") {
  DecisionLogOptions options;
  options.drop = {"previous_totals"};
  options.mask = {"hash", "value"};
  Scene scene(options);
  const Json loaded = scene.event();
  CHECK(says(loaded["hash"], "masked:"));
  CHECK_FALSE(loaded.contains("kept"));  // its name has the hash
  scene.policy.run({batch(2, 1)});
  REQUIRE(scene.save(second_source) == Reload::swapped);
  const Json swapped = scene.event();
  CHECK(swapped["previous_hash"] == loaded["hash"]);
  CHECK_FALSE(swapped.contains("previous_totals"));
  scene.policy.set_param("limit", 3);
  scene.policy.set_param("limit", 4);
  const std::vector<Json> set = scene.events();
  REQUIRE(set.size() == 2);
  CHECK(set[1]["previous_value"] == set[0]["value"]);
  CHECK(says(set[0]["value"], "masked:"));
}

TEST_CASE("lines of policies have room in the queue when decisions have none, and can be turned off") {
  std::mutex gate;
  std::vector<Json> lines;
  std::atomic<bool> stuck = false;
  const auto log = std::make_shared<DecisionLog>(DecisionLogOptions{.on_line =
                                                                        [&](std::string_view line) {
                                                                          stuck = true;
                                                                          const std::lock_guard lock(gate);
                                                                          lines.push_back(Json::parse(line));
                                                                        },
                                                                    .queue_records = 2});
  Runtime runtime({.log = triage::test::no_log(), .decisions = log});
  const Policy policy = runtime.load_source(first_source, "p.fake");
  log->flush();
  {
    std::unique_lock lock(gate);
    stuck = false;
    policy.run({batch(1, 1)});
    REQUIRE(fake::eventually([&] { return stuck.load(); }));
    for (int i = 0; i < 5; ++i) policy.run({batch(1, 1)});
    policy.set_param("limit", 7);
    CHECK(log->counts().dropped == 3);
  }
  log->flush();
  CHECK(lines[0]["event"] == "live");
  CHECK(std::count_if(lines.begin(), lines.end(),
                      [](const Json& line) { return line.value("event", "") == "param"; }) == 1);

  std::vector<Json> none;
  const auto quiet = std::make_shared<DecisionLog>(DecisionLogOptions{
      .events = false, .on_line = [&](std::string_view line) { none.push_back(Json::parse(line)); }});
  Runtime other({.log = triage::test::no_log(), .decisions = quiet});
  other.load_source(first_source, "p.fake").set_param("limit", 7);
  quiet->flush();
  CHECK(none.empty());
}
