// Canaries: who answers, what is counted, when they go live or are taken back.
#include "runtime/policy/candidates/rules.h"
#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <atomic>
#include <cmath>
#include <thread>

using triage::Answered;
using triage::CanaryOptions;
using triage::CandidateKind;
using triage::CandidateReport;
using triage::CandidateState;
using triage::Policy;
using triage::Reload;
using triage::RunInfo;
using triage::Runtime;
using triage::WatchEvent;
using triage::test::batch;
using triage::test::first;
using triage::test::says;

namespace {

bool ends(const Policy& policy, CandidateState state) {
  return fake::eventually([&] { return policy.candidate()->state == state; });
}

}  // namespace

TEST_CASE("a canary answers its share of the calls; RunInfo and statistics name its version") {
  Runtime runtime;
  const Policy policy = runtime.load_source("outputs z\nadd 1", "p.fake");
  const at::Tensor z = at::zeros({4});
  policy.run({z});
  CHECK_FALSE(policy.candidate());
  const triage::VersionInfo started = policy.canary_source("outputs z\nadd 2", {.share = 0.25});
  CHECK(started.number == 2);
  CHECK(started.candidate);
  RunInfo info;
  int of_canary = 0;
  for (int i = 0; i < 100; ++i) {
    const float value = first(policy.run({z}, {.info = &info}));
    of_canary += info.answered == Answered::canary;
    CHECK(value == (info.answered == Answered::canary ? 2.0f : 1.0f));
    CHECK(info.version == (info.answered == Answered::canary ? 2 : 1));
    CHECK(info.hash == (info.answered == Answered::canary ? started.hash : policy.version().hash));
  }
  CHECK(of_canary == 25);
  const auto all = policy.statistics();
  CHECK(all.total.answered(Answered::canary) == 25);
  CHECK(all.total.answered(Answered::live) == 76);
  REQUIRE(all.versions.size() == 2);
  CHECK(all.versions[1].number == 2);
  CHECK(all.versions[1].calls.calls() == 25);
  CHECK(all.candidates == 1);
  CHECK(all.reloads == 1);

  const auto versions = policy.versions();
  REQUIRE(versions.size() == 2);
  CHECK(versions[1].candidate);
  CHECK_FALSE(versions[1].live);
  CHECK(policy.version().number == 1);
  const CandidateReport report = *policy.candidate();
  CHECK(report.kind == CandidateKind::canary);
  CHECK(report.state == CandidateState::running);
  CHECK(report.version == 2);
  CHECK(report.live_version == 1);
  CHECK(report.candidate.calls == 25);
  CHECK(report.live.calls == 75);
  CHECK(report.notes.size() == 2);  // too few for the ratios
}

TEST_CASE("a decision always meets the same side, and a larger share has those of a smaller one") {
  Runtime runtime;
  const Policy policy = runtime.load_source("add 1", "p.fake");
  const at::Tensor z = at::zeros({4});
  std::vector<bool> of_small;
  for (const double share : {0.2, 0.4}) {
    policy.canary_source("add 2", {.share = share, .promote_after = 0});
    int chosen = 0;
    for (int i = 0; i < 1000; ++i) {
      const std::string id = "decision " + std::to_string(i);
      const bool canary = first(policy.run({z}, {.decision_id = id})) == 2.0f;
      chosen += canary;
      CHECK((first(policy.run({z}, {.decision_id = id})) == 2.0f) == canary);
      if (share == 0.2)
        of_small.push_back(canary);
      else if (of_small[static_cast<size_t>(i)])
        CHECK(canary);
    }
    CHECK(chosen == doctest::Approx(1000 * share).epsilon(0.15));
    policy.end_candidate();
  }
}

TEST_CASE("a canary is promoted after its calls, as a version that goes live, and the one before is kept") {
  fake::Folder folder;
  Runtime runtime;
  fake::write(folder / "p.fake", "add 1");
  fake::write(folder / "next.fake", "add 2");
  const Policy policy = runtime.load(folder / "p.fake");
  std::vector<WatchEvent> events;
  std::mutex mutex;
  triage::Watch watch = runtime.watch(folder.path(), {.on_event = [&](const WatchEvent& event) {
                                        const std::lock_guard lock(mutex);
                                        events.push_back(event);
                                      }});
  std::atomic<int> ended{0};
  policy.canary(folder / "next.fake", {.share = 1, .promote_after = 10, .on_end = [&](const CandidateReport& report) {
                                         ended += report.state == CandidateState::promoted ? 1 : 100;
                                       }});
  CHECK(policy.versions().back().path == (folder / "next.fake").string());
  const at::Tensor z = at::zeros({4});
  for (int i = 0; i < 10; ++i) CHECK(first(policy.run({z})) == 2.0f);
  REQUIRE(ends(policy, CandidateState::promoted));
  CHECK(policy.version().number == 2);
  CHECK(policy.version().path == (folder / "p.fake").string());
  CHECK(policy.candidate()->reason == "it answered 10 calls, and no rule was broken");
  CHECK(policy.candidate()->live_version == 1);
  CHECK(fake::eventually([&] { return ended == 1; }));
  RunInfo info;
  CHECK(first(policy.run({z}, {.info = &info})) == 2.0f);
  CHECK(info.answered == Answered::live);
  CHECK(policy.statistics().reloads == 2);
  CHECK(policy.statistics().promoted == 1);
  watch.rescan();
  {
    const std::lock_guard lock(mutex);
    REQUIRE(std::count_if(events.begin(), events.end(), [](const WatchEvent& event) {
              return event.kind == WatchEvent::Kind::promoted && event.version == 2;
            }) == 1);
  }
  // The file has the old source still: only its next change is followed.
  CHECK(policy.version().number == 2);
  fake::write(folder / "p.fake", "add 3");
  watch.rescan();
  CHECK(first(policy.run({z})) == 3.0f);
  policy.rollback(2);
  CHECK(first(policy.run({z})) == 2.0f);
}

TEST_CASE("a failure of a canary is answered by the live version, counted, and takes it back") {
  fake::Folder folder;
  Runtime runtime;
  fake::write(folder / "p.fake", "add 1");
  const Policy policy = runtime.load(folder / "p.fake");
  std::vector<WatchEvent> events;
  triage::Watch watch =
      runtime.watch(folder.path(), {.on_event = [&](const WatchEvent& event) { events.push_back(event); }});
  policy.canary_source("raise_above 3\nadd 2", {.share = 1, .revert_if = {.failures = 2}});
  RunInfo info;
  CHECK(first(policy.run({at::zeros({4})}, {.info = &info})) == 2.0f);
  CHECK(first(policy.run({at::full({4}, 9.0f)}, {.info = &info})) == 10.0f);
  CHECK(info.answered == Answered::previous);
  CHECK(info.version == 1);
  CHECK(info.failure == "too large");
  CHECK(policy.candidate()->state == CandidateState::running);
  CHECK(policy.candidate()->candidate.failures == 1);
  CHECK(first(policy.run({at::full({4}, 9.0f)})) == 10.0f);
  const CandidateReport report = *policy.candidate();
  CHECK(report.state == CandidateState::reverted);
  CHECK(report.reason ==
        "failures: the candidate failed 2 calls, and version 1 answered them; the limit is 2: too large");
  CHECK(report.last_failure == "too large");
  CHECK(first(policy.run({at::zeros({4})}, {.info = &info})) == 1.0f);
  CHECK(info.answered == Answered::live);
  CHECK(policy.versions().size() == 1);
  CHECK(policy.statistics().candidates_reverted == 1);
  CHECK(policy.statistics().total.answered(Answered::previous) == 2);
  watch.rescan();
  watch.stop();
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == WatchEvent::Kind::candidate_reverted);
  CHECK(events[0].version == 1);
  CHECK(events[0].source.line == 1);
  CHECK(to_string(events[0].kind) == std::string("candidate_reverted"));
}

TEST_CASE("a promoted canary whose kept versions are on trial has the last good version of the live one") {
  Runtime runtime({.on_error = triage::OnError::last_good, .keep_versions = 2, .trial_calls = 10, .trial_seconds = 0});
  const Policy policy = runtime.load_source("add 1", "p.fake");
  policy.run({at::zeros({4})});
  REQUIRE(policy.replace("add 2") == Reload::swapped);
  policy.canary_source("raise_above 3\nadd 3", {.share = 1, .promote_after = 0});
  for (int i = 0; i < 10; ++i) CHECK(first(policy.run({at::zeros({4})})) == 3.0f);
  policy.promote();
  RunInfo info;
  CHECK(first(policy.run({at::full({4}, 9.0f)}, {.info = &info})) == 10.0f);
  CHECK(info.answered == Answered::last_good);
  CHECK(info.version == 1);
}

TEST_CASE("a call that both versions fail, or that does not fit the signature, is no failure of a canary") {
  Runtime runtime({.failures_to_revert = 0});
  const Policy policy = runtime.load_source("raise_above 3\nadd 1", "p.fake");
  policy.canary_source("raise_above 3\nadd 2", {.share = 1});
  CHECK_THROWS_AS(policy.run({at::full({4}, 9.0f)}), triage::PolicyError);
  CHECK_THROWS_AS(policy.run({}), triage::InputError);
  CHECK_THROWS_AS(policy.run({at::zeros({1})}, {.params = {{"none", 1}}}), triage::InputError);
  CHECK(policy.candidate()->state == CandidateState::running);
  CHECK(policy.candidate()->candidate.failures == 0);
  CHECK(first(policy.run({at::zeros({4})})) == 2.0f);
}

TEST_CASE("an answer of a canary in another form than that of the live version is a failure") {
  Runtime runtime;
  const Policy policy = runtime.load_source("add 1", "p.fake");
  policy.canary_source("double_above 3\nadd 2", {.share = 1});
  const auto answer = policy.run({at::full({4}, 9.0f)});
  CHECK((answer[0].scalar_type() == at::kFloat));
  CHECK(first(answer) == 10.0f);
  CHECK(policy.candidate()->state == CandidateState::reverted);
  CHECK(policy.candidate()->reason.find("the type of output") != std::string::npos);
}

TEST_CASE("a candidate is refused as a reload is, and there is one at a time") {
  fake::Folder folder;
  Runtime runtime;
  const Policy policy = runtime.load_source("inputs z\nadd 1", "p.fake");
  policy.run({at::zeros({4})});
  const auto message = [&](const char* source) {
    return fake::message_of([&] { policy.canary_source(source, {.share = 1}); });
  };
  CHECK(message("broken why").find("why") != std::string::npos);
  CHECK(message("inputs a b\nadd 1").find("the new source changes the inputs from (z) to (a, b)") != std::string::npos);
  CHECK(message("add 1\ntest sum wrong").find("fails its own tests: 'sum': wrong") != std::string::npos);
  CHECK(message("raise why").find("raised") != std::string::npos);
  CHECK(policy.statistics().refused == 4);
  CHECK(message("inputs z\nadd 1").find("has the source of version 1, which is live") != std::string::npos);
  CHECK(fake::message_of([&] { policy.canary(folder / "none.fake"); }).find("there is no such file") !=
        std::string::npos);
  CHECK(fake::message_of([&] { policy.canary_source("add 2", {.share = 5}); }) ==
        "the share of a candidate is 5; give a number above 0 and at most 1, such as 0.05");
  CHECK(fake::message_of([&] { policy.canary_source("add 2", {.revert_if = {.p99_ratio = 0.5}}); }) ==
        "RevertIf::p99_ratio is 0.5; give 0 (no such rule), or at least 1");
  CHECK(fake::message_of([&] { policy.promote(); }).find("has no candidate to promote") != std::string::npos);
  CHECK(fake::message_of([&] { policy.end_candidate(); }).find("has no candidate to end") != std::string::npos);
  CHECK(first(policy.run({at::zeros({4})})) == 1.0f);

  policy.canary_source("add 2");
  const std::string second = fake::message_of([&] { policy.shadow_source("add 3"); });
  CHECK(second.find("has a candidate already, version 2") != std::string::npos);
  CHECK(second.find("End it with end_candidate, or make it live with promote") != std::string::npos);
  CHECK(fake::message_of([&] { policy.rollback(2); }) ==
        "policy 'p': version 2 is a candidate; make it live with promote");
}

TEST_CASE("a reload beside a canary goes live as usual; the canary goes on, and its comparison begins anew") {
  Runtime runtime({.trial_calls = 5, .trial_seconds = 0});
  const Policy policy = runtime.load_source("add 1", "p.fake");
  const at::Tensor z = at::zeros({4});
  policy.run({z});
  policy.canary_source("add 2", {.share = 0.5, .promote_after = 20});
  for (int i = 0; i < 20; ++i) policy.run({z});
  CHECK(policy.candidate()->candidate.calls == 10);
  REQUIRE(policy.replace("add 3") == Reload::swapped);
  CHECK(policy.version().number == 3);
  CHECK(policy.candidate()->restarts == 1);
  CHECK(policy.candidate()->candidate.calls == 0);
  CHECK(policy.candidate()->live_version == 3);
  for (int i = 0; i < 20; ++i) {
    const float value = first(policy.run({z}));
    CHECK((value == 2.0f || value == 3.0f));
  }
  CHECK(policy.candidate()->candidate.calls == 10);
  policy.promote();
  CHECK(policy.version().number == 2);
  CHECK(first(policy.run({z})) == 2.0f);
  CHECK(policy.candidate()->state == CandidateState::promoted);
  // What stands in for it is what was live before it, though that has a higher number.
  REQUIRE(policy.replace("raise_above 3\nadd 4") == Reload::swapped);
  CHECK(policy.version().number == 4);
  CHECK(first(policy.run({at::full({4}, 9.0f)})) == 11.0f);
  CHECK(policy.version().number == 2);
}

TEST_CASE("params of the host hold for a candidate, also one that only it has") {
  Runtime runtime;
  const Policy policy = runtime.load_source("param a 1.0\nadd_param a", "p.fake");
  policy.set_param("a", 5.0);
  policy.canary_source("param a 1.0\nparam b 0.0\nadd_param a\nadd_param b", {.share = 1});
  const at::Tensor z = at::zeros({4});
  CHECK(first(policy.run({z})) == 5.0f);
  policy.set_param("b", 2.0);
  CHECK(first(policy.run({z})) == 7.0f);
  CHECK(first(policy.run({z}, {.params = {{"a", 1.0}}})) == 3.0f);
  policy.promote();
  CHECK(first(policy.run({z})) == 7.0f);
}

TEST_CASE(
    "a candidate with a narrower range: what it does not allow is no value of the host, and its own failure in a "
    "call") {
  Runtime runtime;
  const Policy policy = runtime.load_source("param a 1.0 0 10\nadd_param a", "p.fake");
  const std::string narrow = "param a 1.0 0 2\nadd_param a\nadd 100";
  const at::Tensor z = at::zeros({4});
  policy.run({z});
  policy.set_param("a", 5.0);
  CHECK(says(fake::message_of([&] { policy.canary_source(narrow, {.share = 1}); }), "must lie between 0 and 2, got 5"));
  policy.set_param("a", 1.0);
  policy.canary_source(narrow, {.share = 1, .revert_if = {.failures = 2}});
  CHECK(first(policy.run({z})) == 101.0f);
  const std::string refused = fake::message_of([&] { policy.set_param("a", 5.0); });
  CHECK(refused ==
        "policy 'p': param 'a' must lie between 0 and 2, got 5. So says version 2, the candidate; end it first, "
        "or give a value that both allow");
  CHECK(first(policy.run({z}, {.params = {{"a", 2.0}}})) == 102.0f);
  CHECK(first(policy.run({z}, {.params = {{"a", 5.0}}})) == 5.0f);
  CHECK(policy.candidate()->state == CandidateState::running);
  CHECK(first(policy.run({z}, {.params = {{"a", 6.0}}})) == 6.0f);
  CHECK(policy.candidate()->state == CandidateState::reverted);
  CHECK_THROWS_AS(policy.run({z}, {.params = {{"a", 11.0}}}), triage::InputError);
  policy.set_param("a", 5.0);
  CHECK(first(policy.run({z})) == 5.0f);
}

TEST_CASE("a pinned version is not replaced by a candidate") {
  Runtime runtime;
  const Policy policy = runtime.load_source("add 1", "p.fake");
  policy.pin(1);
  policy.canary_source("add 2", {.share = 1, .promote_after = 64});
  const at::Tensor z = at::zeros({4});
  for (int i = 0; i < 64; ++i) policy.run({z});
  CHECK(fake::message_of([&] { policy.promote(); }).find("call unpin before promote") != std::string::npos);
  CHECK(policy.candidate()->state == CandidateState::running);
  CHECK(policy.candidate()->notes.back() == "version 1 is pinned: the candidate is not promoted before unpin");
  policy.unpin();
  CHECK(fake::eventually([&] {
    for (int i = 0; i < 64; ++i) policy.run({z});
    return policy.candidate()->state == CandidateState::promoted;
  }));
}

TEST_CASE("a canary that flags far more samples is taken back") {
  Runtime runtime;
  const Policy policy = runtime.load_source("outputs z f\nadd 1\nflags", "p.fake");
  const at::Tensor z = batch(64, 1);
  policy.run({z});
  policy.canary_source("outputs z f\nmul 1e30\nmul 1e30\nflags", {.share = 0.5, .min_calls = 20, .min_samples = 100});
  for (int i = 0; i < 2000 && policy.candidate()->state == CandidateState::running; ++i) policy.run({z});
  const CandidateReport report = *policy.candidate();
  CHECK(report.state == CandidateState::reverted);
  CHECK(report.reason.find("flagged_ratio: the candidate flagged 4096 of 4096 samples (100 %), version 1 flagged") ==
        0);
  CHECK(report.candidate.flagged == report.candidate.samples);
}

TEST_CASE("a slow canary is taken back") {
  Runtime runtime({.count_flags = false});
  std::atomic<bool> slow{false};
  runtime.define("wait", [&](const std::vector<at::Tensor>& in) {
    std::this_thread::sleep_for(std::chrono::microseconds(slow ? 3000 : 10));
    return in;
  });
  const Policy policy = runtime.load_source("add 1", "p.fake");
  const at::Tensor z = at::zeros({4});
  policy.run({z});
  policy.canary_source("host wait\nadd 1", {.share = 0.5, .min_calls = 30});
  CHECK(policy.candidate()->notes.back() == "flagged_ratio is not checked: RuntimeOptions::count_flags is off");
  slow = true;
  for (int i = 0; i < 1000 && policy.candidate()->state == CandidateState::running; ++i) policy.run({z});
  const CandidateReport report = *policy.candidate();
  CHECK(report.state == CandidateState::reverted);
  CHECK(report.reason.find("p99_ratio: 99 % of the candidate's") == 0);
}

TEST_CASE("rules: noise reverts nothing, a real difference does") {
  using triage::policy::broken_rule;
  triage::policy::CanaryMeasurements measured;
  CanaryOptions options;
  measured.live = {10000, 100000, 100, {}};
  measured.candidate = {1000, 10000, 20, {}};  // 2 times as many
  CHECK_FALSE(broken_rule(measured, options));
  measured.candidate.flagged = 60;  // 6 times
  CHECK(broken_rule(measured, options));
  measured.spread = 50;  // whole batches at a time: that is one bad batch
  CHECK_FALSE(broken_rule(measured, options));
  measured.spread = 1;
  measured.live.flagged = 0;
  measured.candidate.flagged = 1;
  CHECK_FALSE(broken_rule(measured, options));
  measured.candidate.flagged = 100;
  CHECK(broken_rule(measured, options));
  measured.candidate.calls = 100;  // too few
  CHECK_FALSE(broken_rule(measured, options));
  CHECK(triage::policy::unchecked_rules(measured, options).size() == 2);
  options.min_calls = options.min_samples = 0;
  CHECK_FALSE(broken_rule({}, options));  // nothing to divide by
  options.revert_if = {0, 0, 0};
  measured.failures = 1000;
  CHECK_FALSE(broken_rule(measured, options));
  CHECK(triage::policy::unchecked_rules(measured, options).empty());

  using std::chrono::microseconds;
  triage::policy::Latency live, same, slower;
  for (int i = 0; i < 10000; ++i) live.note(microseconds(i % 100 == 0 ? 1000 : 100));
  for (int i = 0; i < 1000; ++i) same.note(microseconds(i % 50 == 0 ? 2500 : 100));    // 2 % instead of 1 %
  for (int i = 0; i < 1000; ++i) slower.note(microseconds(i % 25 == 0 ? 2500 : 100));  // 4 %
  options = {};
  measured = {};
  measured.live.latency = live.read();
  measured.candidate.latency = same.read();
  CHECK_FALSE(broken_rule(measured, options));
  measured.candidate.latency = slower.read();
  CHECK(broken_rule(measured, options));
}

TEST_CASE("latency buckets are an eighth of their bound wide, without a gap") {
  using triage::policy::Latency;
  for (size_t bucket = 0; bucket + 1 < Latency::buckets; ++bucket) {
    CHECK(Latency::bucket_of(Latency::bound(bucket)) == bucket + 1);
    CHECK(Latency::bucket_of(Latency::bound(bucket) - Latency::Time(1)) == bucket);
  }
  CHECK(Latency::bucket_of(Latency::Time(-5)) == 0);
  CHECK(Latency::bucket_of(std::chrono::hours(1000)) == Latency::buckets - 1);
}

TEST_CASE("canaries come, go live, fail and end while four threads call: no failed call, and every call is counted") {
  const int destroyed_before = fake::destroyed_by_caller;
  const int alive_before = fake::alive;
  {
    Runtime runtime({.keep_versions = 2});
    const Policy policy = runtime.load_source("pair 0", "p.fake");
    const at::Tensor z = at::full({8, 4}, 5.0f);
    policy.prepare({z});
    std::atomic<uint64_t> calls{0};
    std::atomic<int> failed{0}, torn{0};
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, policy] {
        fake::is_caller = true;
        while (!stop) {
          ++calls;
          try {
            const auto [sum, value] = policy.run<2>({z});
            if (!at::equal(sum, z + value)) ++torn;
          } catch (const std::exception&) {
            ++failed;
          }
        }
      });
    const auto wait_for_calls = [&] {
      const uint64_t seen = calls;
      CHECK(fake::eventually([&] { return calls > seen + 20; }));
    };
    const auto step = [&](int i) {
      const std::string source = "pair " + std::to_string(i);
      if (i % 4 == 0) {
        policy.canary_source("raise_above 3\n" + source, {.share = 0.5});
        CHECK(ends(policy, CandidateState::reverted));
      } else if (i % 4 == 1) {
        policy.canary_source(source, {.share = 0.5, .promote_after = 5});
        CHECK(ends(policy, CandidateState::promoted));
      } else if (i % 4 == 2) {
        policy.canary_source(source, {.share = 1, .promote_after = 0});
        wait_for_calls();
        policy.end_candidate();
      } else {
        policy.canary_source(source, {.share = 0.5, .promote_after = 0});
        policy.replace("pair " + std::to_string(1000 + i));
        wait_for_calls();
        policy.promote();
      }
    };
    for (int i = 1; i <= 60; ++i) CHECK(fake::message_of([&] { step(i); }) == "");
    stop = true;
    for (auto& thread : threads) thread.join();
    CHECK(failed == 0);
    CHECK(torn == 0);
    const auto all = policy.statistics();
    CHECK(all.total.calls() == calls);
    CHECK(all.total.answered(Answered::failed) == 0);
    CHECK(all.candidates == 60);
    CHECK(all.promoted == 30);
    CHECK(all.candidates_reverted == 15);
  }
  CHECK(fake::destroyed_by_caller == destroyed_before);
  CHECK(fake::alive == alive_before);
}

TEST_CASE("a policy that outlives its Runtime has no candidate any more, and goes on") {
  Policy policy;
  {
    Runtime runtime;
    policy = runtime.load_source("add 1", "p.fake");
    policy.canary_source("add 2", {.share = 1});
    CHECK(first(policy.run({at::zeros({4})})) == 2.0f);
  }
  CHECK(policy.candidate()->state == CandidateState::ended);
  CHECK(policy.candidate()->reason == "the Runtime is gone");
  CHECK(first(policy.run({at::zeros({4})})) == 1.0f);
  CHECK(fake::message_of([&] { policy.canary_source("add 3"); }).find("has outlived its Runtime") != std::string::npos);
}

TEST_CASE("what was promoted is live after a restart, until the file changes") {
  fake::Folder folder;
  const triage::RuntimeOptions options{.cache_dir = folder / "cache"};
  fake::write(folder / "p.fake", "add 1");
  fake::write(folder / "next.fake", "add 2");
  const at::Tensor z = at::zeros({4});
  {
    Runtime runtime(options);
    const Policy policy = runtime.load(folder / "p.fake");
    policy.canary(folder / "next.fake", {.share = 1});
    policy.run({z});
    policy.promote();
  }
  CHECK(first(Runtime(options).load(folder / "p.fake").run({z})) == 2.0f);
  fake::write(folder / "p.fake", "add 3");
  CHECK(first(Runtime(options).load(folder / "p.fake").run({z})) == 3.0f);
}

TEST_CASE("on_end may use the policy, and throw") {
  Runtime runtime;
  const Policy policy = runtime.load_source("add 1", "p.fake");
  std::atomic<int> second{0};
  policy.canary_source("add 2", {.share = 1, .promote_after = 3, .on_end = [&](const CandidateReport&) {
                                   second = policy.canary_source("add 3").number;
                                   throw std::runtime_error("on purpose");
                                 }});
  for (int i = 0; i < 3; ++i) policy.run({at::zeros({4})});
  CHECK(fake::eventually([&] { return second == 3; }));
  CHECK(policy.candidate()->version == 3);
}
