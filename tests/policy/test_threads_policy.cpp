// What threads may ask of one policy, and do to it, while it runs and changes.
#include "tests/logs.h"
#include "tests/policy/answers.h"
#include "tests/policy/threads.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <triage/triage.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <string>

using triage::Answered;
using triage::CandidateState;
using triage::Policy;
using triage::PolicyState;
using triage::Reload;
using triage::RunInfo;
using triage::Runtime;
using triage::test::batch;
using triage::test::first;
using triage::test::no_log;
using triage::test::says;
using triage::test::Threads;

namespace {

/// The sum of the values of a metric, over all its labels.
double metric(const std::string& text, const std::string& name) {
  double sum = 0;
  const std::string begin = "\ntriage_" + name + "{";
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1))
    sum += std::stod(text.substr(text.find("} ", at) + 2, 20));
  return sum;
}

/// What is asked of a policy and must hold whatever else happens to it.
void check_versions(const Policy& policy, Threads& threads) {
  const auto all = policy.versions();
  const auto live = [](const auto& one) { return one.live; };
  threads.expect(std::count_if(all.begin(), all.end(), live) == 1, "not one version is live");
  threads.expect(std::none_of(all.begin(), all.end(), [](const auto& one) { return one.pinned && !one.live; }),
                 "a version is pinned that is not live");
  threads.expect(
      std::is_sorted(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.number < b.number; }),
      "versions are out of order");
  const triage::VersionInfo now = policy.version();
  threads.expect(now.live && now.number > 0 && now.hash.size() == 16 && now.path == "p.fake", "no live version");
  threads.expect(!now.last_error || !now.last_error->message.empty(), "a failure without a message");
}

void check_graphs(const Policy& policy, Threads& threads) {
  for (const auto& one : policy.graphs()) threads.expect(one.graph && !one.guards.empty(), "a graph without guards");
  for (const auto& segment : policy.segments()) threads.expect(segment != nullptr, "a segment that is null");
  threads.expect(policy.cache().bytes < (size_t{1} << 30), "graphs of a size that none has");
  policy.compile_times();
  for (const auto& one : policy.breaks())
    threads.expect(!one.id.empty() && !one.text.empty(), "a break without a text");
  for (const std::string& one : policy.graph_breaks()) threads.expect(!one.empty(), "a break without a line");
  const std::vector<bool> flags = policy.flags_outputs();
  threads.expect(flags.empty() || flags == std::vector<bool>{false, true}, "other outputs are flags");
  const auto signature = policy.signature();
  threads.expect(signature.inputs == std::vector<std::string>{"z"} &&
                     signature.outputs == std::vector<std::string>{"z", "f"} && !signature.params.empty(),
                 "a signature of no version");
  threads.expect(policy.run_tests() == std::vector<std::pair<std::string, std::string>>{{"own", ""}},
                 "the policy's own test");
}

}  // namespace

TEST_CASE("threads: RunInfo, statistics and metrics say which version gave an answer, over reloads and ways back") {
  constexpr int versions = 30;
  Runtime runtime({.log = no_log(), .keep_versions = versions, .trial_calls = 3, .trial_seconds = 0});
  const auto source = [](int number) { return fmt::format("outputs z f\nadd {}\nflags", number); };
  const Policy policy = runtime.load_source(source(1), "p.fake");
  std::array<std::atomic<uint64_t>, versions + 1> answered = {};
  Threads threads;
  for (int t = 0; t < 3; ++t)
    threads.add([&](int) {
      thread_local RunInfo info;
      const auto outputs = policy.run({batch(8, 1)}, {.info = &info});
      threads.expect(info.answered == Answered::live, "the live version did not answer: " + info.failure);
      threads.expect(first(outputs) == static_cast<float>(1 + info.version), "RunInfo names another version");
      threads.expect(info.flagged == 1 && info.hash.size() == 16, "RunInfo is not of this call");
      ++answered.at(static_cast<size_t>(info.version));
    });
  threads.add([&, last = uint64_t{0}](int) mutable {
    const auto now = policy.statistics();
    uint64_t sum = 0;
    for (const auto& version : now.versions) sum += version.calls.calls();
    threads.expect(now.total.calls() >= last && sum == now.total.calls(), "calls are missing");
    threads.expect(now.versions.size() == now.reloads, "versions are missing");
    last = now.total.calls();
  });
  threads.add([&, last = 0.0](int) mutable {
    const std::string text = metrics_text(runtime);
    const double calls = metric(text, "calls_total");
    threads.expect(calls >= last, "a counter has decreased");
    threads.expect(metric(text, "version_live") == 1, "not one version is live in the metrics");
    last = calls;
  });
  for (int number = 2; number <= versions; ++number) {
    CHECK((policy.replace(source(number)) == Reload::swapped));
    policy.rollback(1 + number / 2);
    threads.expect(policy.version().number == 1 + number / 2, "a rollback does not last");
    CHECK(threads.go_round(1));
    policy.pin(number);
    check_versions(policy, threads);
    CHECK(threads.go_round(1));
    CHECK((policy.unpin() == Reload::unchanged));
  }
  CHECK(threads.end() == "");
  const auto all = policy.statistics();
  REQUIRE(all.versions.size() == versions);
  for (const auto& version : all.versions)
    CHECK(version.calls.calls() == answered.at(static_cast<size_t>(version.number)));
  CHECK(all.total.flagged == all.total.calls());
}

TEST_CASE("threads: no call is lost in the state of a key while it is asked for, saved, and versions change") {
  const fake::Folder folder;
  Runtime runtime({.log = no_log()});
  const auto source = [](int number) { return fmt::format("remember\nadd {}", number); };
  const Policy policy = runtime.load_source(source(1), "p.fake");
  const auto calls_before = [&](const std::string& key) {
    RunInfo info;
    const auto outputs = policy.run({at::zeros({2})}, {.info = &info, .state_key = key});
    return first(outputs) - static_cast<float>(info.version);
  };
  std::atomic<int64_t> calls{0}, sum{0};
  Threads threads;
  for (int t = 0; t < 3; ++t)
    threads.add([&, own = fmt::format("own {}", t)](int round) {
      threads.expect(calls_before(own) == static_cast<float>(round), "a call of a key that one thread has was lost");
      sum += static_cast<int64_t>(calls_before("shared"));
      ++calls;
    });
  threads.add([&](int) {
    threads.expect(calls_before("other") >= 0, "the state of a key is none");
    policy.reset_state("other");
  });
  threads.add([&, last = std::map<std::string, float>()](int) mutable {
    for (const auto& [key, tensors] : policy.state()) {
      threads.expect(tensors.size() == 1 && tensors[0].first == "calls", "state that is not declared");
      if (key == "other") continue;
      threads.expect(first(tensors[0].second) >= last[key], "the state of a key went back");
      last[key] = first(tensors[0].second);
    }
    policy.save_state(folder / "state.pt");
    threads.expect(metric(metrics_text(runtime), "state_keys") <= 5, "state of keys that were not used");
  });
  for (int number = 2; number < 20; ++number) {
    policy.shadow_source(fmt::format("remember\nadd 0.{}", number), {.share = 0.5});
    const int next = policy.statistics().versions.back().number + 1;
    CHECK((policy.replace(source(next)) == Reload::swapped));
    CHECK(threads.go_round(1));
    policy.rollback(policy.versions().front().number);
    CHECK(threads.go_round(1));
    policy.end_candidate();
  }
  CHECK(threads.end() == "");
  CHECK(sum == calls * (calls - 1) / 2);  // 0, 1, ..., each once
  CHECK(calls_before("shared") == static_cast<float>(calls));
  policy.load_state(folder / "state.pt");  // whole, whenever it was saved
  CHECK(calls_before("shared") <= static_cast<float>(calls));
}

TEST_CASE("threads: a call that runs while its key is set does not change it any more") {
  const fake::Folder folder;
  Runtime runtime({.log = no_log()});
  const Policy policy = runtime.load_source("remember", "p.fake"), other = runtime.load_source("remember", "p.fake");
  constexpr float step = 100'000;
  std::atomic<int> times{0};
  const auto set_to = [](int time) {
    return PolicyState{{"a", {{"calls", at::scalar_tensor(step * static_cast<float>(time))}}}, {"b", {}}};
  };
  Threads threads;
  for (int t = 0; t < 3; ++t)
    threads.add([&](int) {
      const int before = times;
      const float calls = first(policy.run({at::zeros({2})}, {.state_key = "a"}));
      threads.expect(calls >= step * static_cast<float>(before), "a call has undone what was set after it began");
      threads.expect(calls < step * static_cast<float>(before + 100), "state that nobody has set");
      policy.run({at::zeros({2})}, {.state_key = "b"});
    });
  for (int time = 1; time <= 60; ++time) {
    if (time % 2) {
      policy.set_state(set_to(time));
    } else {
      other.set_state(set_to(time));
      other.save_state(folder / "state.pt");
      policy.load_state(folder / "state.pt");
    }
    times = time;
    CHECK(threads.go_round(1));
    if (time % 10 == 0) policy.replace(time % 20 ? "remember\nadd 0" : "remember");
  }
  CHECK(threads.end() == "");
  CHECK(first(policy.run({at::zeros({2})}, {.state_key = "a"})) > step * 60);
}

TEST_CASE("threads ask everything of a policy while others change it in every way") {
  Runtime runtime({.log = no_log(), .keep_versions = 3, .trial_calls = 2, .trial_seconds = 0, .failures_to_revert = 2});
  runtime.define("same", [](const std::vector<at::Tensor>& in) { return in; });
  const auto source = [](const std::string& body) {
    return "param p 0.0\noutputs z f\ntest own\nadd_param p\n" + body + "\nflags";
  };
  const Policy policy = runtime.load_source(source("add 0"), "p.fake");
  const std::vector<std::string> sources = {
      source("add 1"), source("broken on purpose"), source("host same\nraise_above 5"),
      source("count"), source("host same\nraise"),  source("int_param more 1\nadd 2")};
  Threads threads;
  for (int t = 0; t < 2; ++t)
    threads.add([&](int round) {
      try {
        policy.run({at::full({1 + round % 3, 2}, round % 7 == 0 ? 10.0 : 1.0)}, {.params = {{"p", round % 2}}});
        policy.run_named({{"z", at::ones({2, 2})}})["f"];
        if (round % 5 == 0) policy.prepare({at::ones({2, 2})});
      } catch (const triage::PolicyError&) {  // a version that fails behind its trial
      }
    });
  threads.add([&](int) { check_versions(policy, threads); });
  threads.add([&](int) { check_graphs(policy, threads); });
  threads.add([&](int) { threads.expect(says(metrics_text(runtime), "triage_version_live{policy=\"p\""), "metrics"); });
  threads.add([&](int round) {
    try {
      const auto all = policy.versions();
      if (round % 3 == 0) policy.rollback(all.front().number);
      if (round % 5 == 0) policy.pin(all.back().number);
      if (round % 5 == 2) policy.unpin();
      policy.set_param("p", round % 2);
      policy.manual_seed(static_cast<uint64_t>(round));
    } catch (const triage::InputError&) {  // it was dropped since
    }
  });
  for (int i = 0; i < 120; ++i) policy.replace(sources[static_cast<size_t>(i * 5 + i / 6) % sources.size()]);
  CHECK(threads.go_round());
  CHECK(threads.end() == "");
  CHECK((policy.replace(source("add 3")) == Reload::swapped));
  CHECK(first(policy.run({at::zeros({2, 2})}, {.params = {{"p", 0}}})) == 3.0f);
}

TEST_CASE("threads start, promote and end candidates of one policy: each ends once, in one way, and no call fails") {
  std::atomic<uint64_t> canaries{0}, started{0}, ended{0}, told{0};
  std::atomic<int> serial{0};
  const auto source = [&] { return fmt::format("pair {}", ++serial); };
  Runtime runtime({.log = no_log(), .keep_versions = 2});
  const Policy policy = runtime.load_source("pair 0", "p.fake");
  const at::Tensor z = at::full({4, 2}, 5.0f);
  Threads threads;
  for (int t = 0; t < 2; ++t)
    threads.add([&](int) {
      const auto [sum, value] = policy.run<2>({z});
      threads.expect(at::equal(sum, z + value), "an answer of two versions");
    });
  const auto on_end = [&](const triage::CandidateReport& report) {
    threads.expect(report.state != CandidateState::running && !report.reason.empty(), "an end without a reason");
    ++told;
  };
  for (int t = 0; t < 2; ++t)
    threads.add([&, t](int round) {
      try {
        if ((round + t) % 2) {
          const bool fails = round % 3 == 0;
          policy.canary_source((fails ? "raise_above 3\n" : "") + source(),
                               {.share = 0.5, .promote_after = 4, .on_end = on_end});
          ++canaries;
        } else {
          policy.shadow_source(source(), {.share = 0.5, .queue = 4});
        }
        ++started;
      } catch (const triage::InputError&) {  // there is one
      }
    });
  for (int t = 0; t < 2; ++t)
    threads.add([&, t](int) {
      try {
        if (t == 1) return policy.promote();
        threads.expect(policy.end_candidate().state == CandidateState::ended, "the report of another end");
        ++ended;
      } catch (const triage::InputError&) {  // there is none
      }
    });
  threads.add([&](int) {
    const auto report = policy.candidate();
    if (!report) return;
    const auto& shadow = report->shadow;
    threads.expect(shadow.samples == 4 * shadow.compared && report->version != report->live_version, "a report");
    threads.expect(says(report->text(), report->hash) && says(report->json(), report->hash), "its text");
    threads.expect(metric(metrics_text(runtime), "candidate") <= 1, "two candidates");
  });
  for (int i = 0; i < 60; ++i) {
    CHECK((policy.replace(source()) == Reload::swapped));
    CHECK(threads.go_round(1));
  }
  CHECK(threads.end() == "");
  const bool one_runs = policy.candidate()->state == CandidateState::running;
  if (one_runs) policy.end_candidate();
  CHECK(fake::eventually([&] { return told == canaries; }));
  const auto all = policy.statistics();
  CHECK(all.candidates == started);
  CHECK(all.promoted + all.candidates_reverted + ended + one_runs == started);
  CHECK(all.total.answered(Answered::failed) == 0);
}
