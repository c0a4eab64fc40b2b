// What threads may do at once with one Runtime, its bundles, watches and decision log, and with what the process
// shares.
#include "runtime/messages/logs/log.h"
#include "runtime/operators/untrusted.h"
#include "runtime/policy/bundles/manifest.h"
#include "tests/logs.h"
#include "tests/policy/answers.h"
#include "tests/policy/threads.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <triage/triage.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>

using std::chrono::milliseconds;
using triage::Bundle;
using triage::BundleVersion;
using triage::Policy;
using triage::Reload;
using triage::RunInfo;
using triage::Runtime;
using triage::Watch;
using triage::WatchEvent;
using triage::test::batch;
using triage::test::first;
using triage::test::no_log;
using triage::test::says;
using triage::test::Threads;

namespace {

/// Writes a bundle of two policies that both add `number`, which is its version, too.
void write_bundle(const std::filesystem::path& dir, int number) {
  std::filesystem::create_directories(dir);
  for (const char* name : {"a.fake", "b.fake"}) fake::write(dir / name, fmt::format("add {}", number));
  triage::policy::Manifest manifest = triage::policy::list_folder(dir);
  manifest.name = "pair";
  manifest.version = std::to_string(number);
  fake::rename_save(dir / "bundle.json", manifest.text());
}

/// The policies of a bundle are all of its version: they change together, so their numbers are the same.
bool is_whole(const BundleVersion& version) {
  return version.policies.size() == 2 && version.policies[0].second == version.policies[1].second &&
         version.sha256.size() == 64;
}

}  // namespace

TEST_CASE("threads: a bundle is whole whoever asks, over reloads, ways back, pins and its Watch") {
  const fake::Folder folder;
  const auto dir = folder / "pair";
  write_bundle(dir, 1);
  Runtime runtime({.log = no_log(), .keep_versions = 4, .trial_calls = 2, .trial_seconds = 0});
  const Bundle bundle = runtime.load_bundle(dir);
  const Watch watch = runtime.watch(dir, {.debounce = milliseconds(1)});
  Threads threads;
  for (int t = 0; t < 2; ++t)
    threads.add([&, t](int) {
      RunInfo info;
      const auto outputs = bundle.policy(t ? "a" : "b").run({at::zeros({2})}, {.info = &info});
      threads.expect(first(outputs) >= 1 && info.version > 0, "an answer of no version");
    });
  threads.add([&](int) {
    const BundleVersion live = bundle.version();
    threads.expect(live.live && is_whole(live), "a version that is not whole is live");
    const auto all = bundle.versions();
    threads.expect(std::count_if(all.begin(), all.end(), [](const auto& one) { return one.live; }) == 1,
                   "live versions");
    threads.expect(std::all_of(all.begin(), all.end(), is_whole), "a version that is kept is not whole");
    threads.expect(bundle.policies() == std::vector<std::string>{"a", "b"}, "other policies");
  });
  threads.add([&](int) {
    const std::string text = metrics_text(runtime);
    const size_t live = text.find("triage_bundle_live{bundle=\"pair\"");
    threads.expect(live != std::string::npos, "no bundle in the metrics");
    bundle.policy("a").statistics();
    threads.expect(bundle.policy("b").version().path == (dir / "b.fake").string(), "a path");
  });
  threads.add([&](int round) {
    try {
      const auto all = bundle.versions();
      if (round % 2) bundle.pin(all.back().number);
      if (round % 2) bundle.unpin();
      bundle.rollback(all.front().number);
    } catch (const triage::InputError&) {  // it was dropped since
    }
  });
  for (int number = 2; number <= 25; ++number) {
    write_bundle(dir, number);
    bundle.reload();
    CHECK(threads.go_round(1));
  }
  CHECK(threads.end() == "");
  write_bundle(dir, 26);
  bundle.reload();
  CHECK(bundle.version().version == "26");
  CHECK(first(bundle.policy("a")) == 26.0f);
  CHECK(first(bundle.policy("b")) == 26.0f);
}

TEST_CASE("threads load, define and watch with one Runtime at once") {
  const fake::Folder folder;
  const auto file = folder / "p.fake";
  fake::write(file, "host plus\nadd 10");
  write_bundle(folder / "pair", 1);
  const int alive = fake::alive;
  {
    Runtime runtime({.log = no_log(), .cache_dir = folder / "cache"});
    const auto define = [&](int number) {
      runtime.define("plus", [number](const std::vector<at::Tensor>& in) { return std::vector{in[0] + number}; });
    };
    define(0);
    Threads threads;
    for (int t = 0; t < 2; ++t)
      threads.add([&](int) {
        const Policy policy = runtime.load(file);
        const float answer = first(policy);
        threads.expect(answer >= 10 && answer <= 23, "an answer of no version with no function");
        policy.pin(policy.version().number);
        policy.unpin();
      });
    threads.add([&](int round) {
      define(round % 4);
      runtime.define_tensor("given", at::full({2}, round));
    });
    threads.add([&](int) {
      const Watch watch = runtime.watch(folder.path(), {.debounce = milliseconds(1)});
      for (const Policy& policy : runtime.policies())
        threads.expect(policy.version().number > 0, "a policy of no version");
      threads.expect(first(runtime.load_source("add 5", "q.fake")) == 5.0f, "an answer of another policy");
    });
    threads.add([&](int) {
      const Bundle bundle = runtime.load_bundle(folder / "pair");
      threads.expect(first(bundle.policy("a")) == 1.0f, "an answer of another bundle");
      threads.expect(says(metrics_text(runtime), "triage_bundle_live"), "no bundle in the metrics");
    });
    for (int i = 1; i <= 10; ++i) {
      fake::rename_save(file, fmt::format("host plus\nadd {}", 10 + i));
      CHECK(threads.go_round(1));
    }
    CHECK(threads.end() == "");
    define(7);
    CHECK(first(runtime.load(file)) == 27.0f);
  }
  CHECK(fake::eventually([&] { return fake::alive == alive; }));
}

TEST_CASE("threads go on with policies, a bundle and a Watch whose Runtime ends meanwhile") {
  const fake::Folder folder;
  fake::write(folder / "p.fake", "add 1");
  write_bundle(folder / "pair", 1);
  const int alive = fake::alive;
  for (int round = 0; round < 8; ++round) {
    auto runtime = std::make_unique<Runtime>(triage::RuntimeOptions{.log = no_log(), .keep_versions = 2});
    const Policy policy = runtime->load(folder / "p.fake");
    const Bundle bundle = runtime->load_bundle(folder / "pair");
    Watch watch = runtime->watch(folder.path(), {.debounce = milliseconds(1)});
    const Policy shadowed = bundle.policy("a");
    shadowed.shadow_source("add 5", {.share = 1});
    if (round % 2)
      policy.shadow_source("add 2", {.share = 0.5});
    else
      policy.canary_source("add 2", {.share = 0.5, .promote_after = 0});
    Threads threads;
    for (int t = 0; t < 2; ++t)
      threads.add([&](int) {
        const float answer = first(policy);
        threads.expect(answer == 1.0f || (answer == 2.0f && round % 2 == 0) || answer >= 10.0f,
                       "an answer of no version");
        threads.expect(first(shadowed) >= 1.0f && first(shadowed) != 5.0f, "a shadow answers");
      });
    threads.add([&](int number) {
      threads.expect(policy.replace(fmt::format("add {}", 10 + number)) == Reload::swapped, "a source is refused");
      if (number % 4 == 0) write_bundle(folder / "pair", 10 + number);
      threads.expect(bundle.reload() != Reload::refused, "a bundle is refused");
      watch.rescan();
    });
    threads.add([&](int) {
      const auto report = policy.candidate();
      threads.expect(report && report->version == 2, "another candidate");
      threads.expect(policy.statistics().candidates == 1 && bundle.version().live, "other counts");
    });
    CHECK(threads.go_round());
    runtime.reset();
    CHECK(threads.go_round());
    CHECK(threads.end() == "");
    CHECK((policy.candidate()->state == triage::CandidateState::ended));
    CHECK(says(fake::message_of([&] { policy.canary_source("add 3"); }), "has outlived its Runtime"));
  }
  CHECK(fake::eventually([&] { return fake::alive == alive; }));
}

TEST_CASE("threads ask a Watch for a look and stop it at once: who has stopped it meets no event any more") {
  const fake::Folder folder;
  fake::write(folder / "p.fake", "add 1");
  Runtime runtime({.log = no_log()});
  const Policy policy = runtime.load(folder / "p.fake");
  for (int round = 2; round < 22; ++round) {
    std::atomic<bool> inside{false};
    std::atomic<int> stopped{0};
    Watch watch = runtime.watch(folder.path(), {.debounce = milliseconds(1), .on_event = [&](const WatchEvent&) {
                                                  inside = true;
                                                  std::this_thread::sleep_for(milliseconds(2));
                                                  inside = false;
                                                }});
    Threads threads;
    fake::rename_save(folder / "p.fake", fmt::format("add {}", round));
    for (int t = 0; t < 2; ++t)
      threads.add([&](int) {
        try {
          watch.rescan();
        } catch (const triage::InputError&) {  // it has ended
          threads.expect(!watch, "a Watch that watches refuses to look");
        }
      });
    for (int t = 0; t < 2; ++t)
      threads.add([&](int) {
        watch.stop();
        threads.expect(!inside, "on_event runs after stop");
        threads.expect(!watch, "a Watch that was stopped watches");
        ++stopped;
      });
    CHECK(fake::eventually([&] { return stopped >= 2; }));
    CHECK(threads.end() == "");
  }
  CHECK((policy.reload() != Reload::refused));
  CHECK(first(policy) == 21.0f);
}

TEST_CASE("threads: the decision log says of each call what its RunInfo says, while versions change") {
  const fake::Folder folder;
  std::map<std::string, RunInfo> told;
  std::mutex mutex;
  constexpr size_t most = 4000;
  const auto log = std::make_shared<triage::DecisionLog>(triage::DecisionLogOptions{.file = folder / "d.jsonl",
                                                                                    .max_file_bytes = 50'000,
                                                                                    .max_files = 1000,
                                                                                    .events = false,
                                                                                    .clean_share = 1,
                                                                                    .queue_records = 2 * most,
                                                                                    .capsule_dir = folder / "capsules",
                                                                                    .max_capsules = 20});
  Runtime runtime({.log = no_log(), .trial_calls = 2, .trial_seconds = 0, .decisions = log});
  const Policy policy = runtime.load_source("outputs z f\nadd 1\nflags", "p.fake");
  Threads threads;
  for (int t = 0; t < 3; ++t)
    threads.add([&, t](int round) {
      if (static_cast<size_t>(round) >= most / 3) return std::this_thread::yield();
      RunInfo info;
      const std::string id = fmt::format("{}.{}", t, round);
      policy.run({batch(3, round % 3)}, {.info = &info, .decision_id = id});
      const std::lock_guard lock(mutex);
      told.emplace(id, info);
    });
  threads.add([&, last = uint64_t{0}](int) mutable {
    log->flush();
    const triage::DecisionCounts counts = log->counts();
    threads.expect(counts.written >= last && counts.dropped == 0 && counts.failed == 0,
                   "decisions that are not written");
    last = counts.written;
  });
  for (int number = 2; number < 20; ++number) {
    policy.replace(fmt::format("outputs z f\nadd {}\nflags", number));
    CHECK(threads.go_round(1));
  }
  CHECK(threads.end() == "");
  log->flush();
  CHECK(log->counts().written == told.size());
  size_t lines = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.is_directory()) continue;
    std::istringstream text(fake::read(entry.path()));
    for (std::string line; std::getline(text, line); ++lines) {
      const auto json = nlohmann::json::parse(line);
      const auto call = told.find(json["decision_id"].get<std::string>());
      REQUIRE(call != told.end());
      CHECK(json["version"] == call->second.version);
      CHECK(json["flagged"] == call->second.flagged);
    }
  }
  CHECK(lines == told.size());
}

TEST_CASE("threads record calls to capsules of their own while versions change, and each can be replayed") {
  const fake::Folder folder;
  Runtime runtime({.log = no_log()});
  const Policy policy = runtime.load_source("remember\nadd 1", "p.fake");
  const auto file = [&](int thread, int round) { return (folder / fmt::format("{}-{}.pt", thread, round)).string(); };
  constexpr int calls = 6;
  Threads threads;
  for (int t = 0; t < 3; ++t)
    threads.add([&, t](int round) {
      if (round >= calls) return std::this_thread::yield();
      const auto outputs = triage::record(policy, {at::full({3, 2}, t)}, {file(t, round)});
      threads.expect(first(outputs) > static_cast<float>(t), "a recorded call has another answer");
    });
  for (int number = 2; number < 12; ++number) {
    policy.replace(fmt::format("remember\nadd {}", number));
    CHECK(threads.go_round(1));
  }
  CHECK(threads.end() == "");
  for (int t = 0; t < 3; ++t)
    for (int round = 0; round < calls; ++round) {
      const triage::Replayed replayed = triage::replay(file(t, round));
      CHECK_MESSAGE(replayed.same, replayed.difference);
    }
}

TEST_CASE("threads: what a call is held to is that of its own Runtime") {
  static std::atomic<int> runs{0}, wrong{0};
  static thread_local int64_t bytes_allowed = 0;  // -1: all
  struct Spy final : triage::Executable {
    explicit Spy(std::unique_ptr<triage::Executable> inner) : inner_(std::move(inner)) {}
    void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
             const triage::CallContext& call) const override {
      const auto* terms = triage::operators::Untrusted::current();
      if ((terms ? terms->bytes : -1) != bytes_allowed) ++wrong;
      ++runs;
      inner_->run(inputs, outputs, call);
      if (triage::operators::Untrusted::current() != terms) ++wrong;
    }
    std::unique_ptr<triage::Executable> inner_;
  };
  triage::register_backend("spy of threads", [](const triage::graph::Graph& graph, const auto& examples) {
    return std::make_unique<Spy>(triage::find_backend("eager")(graph, examples));
  });
  const auto options = [](bool trusted, size_t bytes) {
    triage::RuntimeOptions made{.log = no_log(), .trusted = trusted, .backend = "spy of threads"};
    made.limits.tensor_bytes = bytes;
    return made;
  };
  Runtime trusted(options(true, 1000)), small(options(false, 1000)), large(options(false, 1'000'000));
  const std::vector<std::pair<Policy, int64_t>> policies = {{trusted.load_source("add 1", "p.fake"), -1},
                                                            {small.load_source("add 1", "p.fake"), 1000},
                                                            {large.load_source("add 1", "p.fake"), 1'000'000}};
  for (const auto& [policy, bytes] : policies) {
    bytes_allowed = bytes;
    policy.run({at::zeros({2})});
  }
  runs = 0;
  Threads threads;
  for (int t = 0; t < 3; ++t)
    threads.add([&, t](int round) {
      const auto& [policy, bytes] = policies[static_cast<size_t>(t + round) % policies.size()];
      bytes_allowed = bytes;
      threads.expect(first(policy.run({at::zeros({2})})) == 1.0f, "another answer");
    });
  CHECK(threads.go_round(200));
  CHECK(threads.end() == "");
  CHECK(runs > 500);
  CHECK(wrong == 0);
}

TEST_CASE("threads: two calls of the log that replace it do not wait for each other") {
  struct Shared {  // the threads outlive a test that fails
    std::latch inside{2};
    std::promise<void> ended[2];
  };
  const auto shared = std::make_shared<Shared>();
  triage::set_log([shared](const triage::LogRecord&) {
    shared->inside.arrive_and_wait();
    triage::set_log(no_log());
  });
  for (auto& ended : shared->ended)
    std::thread([shared, &ended] {
      triage::messages::Logger().write(triage::LogLevel::info, "a record");
      ended.set_value();
    }).detach();
  for (auto& ended : shared->ended)
    REQUIRE(ended.get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready);
  triage::set_log(no_log());
}

TEST_CASE("threads register backends and front ends, set the log and diagnostics, while policies load and run") {
  struct Restore {
    triage::Diagnostics diagnostics = triage::get_diagnostics();
    ~Restore() {
      triage::set_diagnostics(diagnostics);
      triage::set_log(no_log());
    }
  };
  const fake::Folder folder;
  const Restore restore;
  Runtime runtime({.log = {}, .backend = "eager"});
  std::atomic<int> registered{-1}, records{0};
  Threads threads;
  threads.add([&](int round) {
    const std::string name = fmt::format("registered {}", round % 8);
    triage::register_backend(name, triage::find_backend("eager"));
    triage::register_front_end(fmt::format(".fake{}", round % 8), triage::find_front_end("p.fake"));
    const auto all = triage::list_backends();
    threads.expect(std::count(all.begin(), all.end(), name) == 1, "a backend is not in the list once");
    registered = std::min(round, 7);
  });
  for (int t = 0; t < 2; ++t)
    threads.add([&](int round) {
      const int number = registered < 0 ? -1 : round % (registered + 1);
      Runtime own({.log = no_log(), .backend = number < 0 ? "eager" : fmt::format("registered {}", number)});
      const std::string name = number < 0 ? "p.fake" : fmt::format("p.fake{}", number);
      threads.expect(first(own.load_source("add 2", name)) == 2.0f, "an answer of another backend");
    });
  threads.add([&](int) {
    const Policy policy = runtime.load_source("add 1", "q.fake");
    threads.expect(policy.replace("broken on purpose") == Reload::refused, "a broken source is live");
    triage::free_idle_output_memory();
    triage::kept_output_memory();
  });
  threads.add([&](int round) {
    const auto ended = std::make_shared<std::atomic<bool>>(false);
    triage::set_log([&, ended](const triage::LogRecord& record) {
      threads.expect(!*ended && !record.text.empty(), "a log is called after another one was set");
      ++records;
    });
    if (round % 2) std::this_thread::yield();
    triage::set_log(no_log());
    *ended = true;
  });
  threads.add([&](int round) {
    triage::Diagnostics some = restore.diagnostics;
    some.function = round % 2 ? "q" : "";
    some.replay_mask = round % 3 ? "a,b" : "";
    some.log_file = round % 2 ? (folder / "log.txt").string() : "";
    some.trace_dir = round % 3 ? (folder / "trace").string() : "";
    some.debug_dir = round % 5 ? (folder / "debug").string() : "";
    some.replay_dir = round % 7 ? (folder / "capsules").string() : "";
    some.logs = round % 2 ? "+reload,capture" : "";
    triage::set_diagnostics(some);
  });
  threads.add([&](int) {
    const triage::Diagnostics now = triage::get_diagnostics();
    threads.expect(now.function == "q" || now.function.empty(), "a setting that nobody has made: " + now.function);
    threads.expect(now.replay_mask == "a,b" || now.replay_mask.empty(), "a setting that nobody has made");
  });
  CHECK(threads.go_round(30));
  CHECK(fake::eventually([&] { return records > 0; }));
  CHECK(threads.end() == "");
}
