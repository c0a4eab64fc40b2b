// Candidates in the shadow: what is compared, what cannot be, and that no call notices.
#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <atomic>
#include <cmath>
#include <thread>

using triage::Answered;
using triage::CandidateReport;
using triage::CandidateState;
using triage::Policy;
using triage::RunInfo;
using triage::Runtime;
using triage::ShadowReport;
using triage::test::first;

namespace {

const float bad = std::nanf("");

ShadowReport shadow_of(const Policy& policy) { return policy.candidate()->shadow; }

/// Waits until so many calls were looked at.
ShadowReport after(const Policy& policy, uint64_t calls) {
  CHECK(fake::eventually([&] {
    const ShadowReport now = shadow_of(policy);
    return now.compared + now.failed + now.dropped + now.not_comparable >= calls;
  }));
  return shadow_of(policy);
}

}  // namespace

TEST_CASE("a shadow changes no answer; the report has what differs, by sample") {
  Runtime runtime;
  const Policy policy = runtime.load_source("outputs z f\nflags", "p.fake");
  at::Tensor z = at::ones({4, 5});
  z[2][1] = bad;
  policy.run({z});
  policy.shadow_source("outputs z f\nadd 0.25\nflags", {.share = 1});
  RunInfo info;
  const std::vector<std::string> ids = {"a", "b", "c", "d"};
  CHECK(first(policy.run({z}, {.info = &info, .decision_id = "one", .sample_ids = ids})) == 1.0f);
  CHECK(info.answered == Answered::live);
  CHECK(info.version == 1);
  ShadowReport report = after(policy, 1);
  CHECK(report.compared == 1);
  CHECK(report.samples == 4);
  CHECK(report.only_live == 0);
  CHECK(report.only_candidate == 0);
  CHECK(report.different == 4);
  CHECK(report.different_unflagged == 3);
  CHECK(report.max_difference == 0.25);
  REQUIRE(report.examples.size() == 4);
  CHECK(report.examples[1].decision_id == "one");
  CHECK(report.examples[1].sample == "b");
  CHECK(report.examples[1].output == "z");
  CHECK(report.examples[1].difference == 0.25);
  for (int i = 0; i < 10; ++i) policy.run({z});
  report = after(policy, 11);
  CHECK(report.compared == 11);
  CHECK(report.examples.size() == 10);  // no more are listed
  CHECK(report.examples[4].sample == "0");
  CHECK(policy.candidate()->live.calls == 11);
  CHECK(policy.candidate()->candidate.calls == 11);
  CHECK(policy.candidate()->candidate.flagged == 11);
  CHECK(policy.statistics().total.calls() == 12);  // runs of the shadow are none
}

TEST_CASE("a shadow that flags other samples: by location and code, with an example") {
  Runtime runtime;
  const Policy policy = runtime.load_source("outputs z f\nflags", "p.fake");
  at::Tensor z = at::ones({6, 5});
  z[2][1] = bad;
  z[4][0] = 1e30f;
  policy.run({z});
  policy.shadow_source("outputs z f\nmul 1e30\nflags", {.share = 1});
  const std::vector<std::string> ids = {"a", "b", "c", "d", "e", "f"};
  policy.run({z}, {.sample_ids = ids});
  const ShadowReport report = after(policy, 1);
  CHECK(report.only_live == 0);
  CHECK(report.only_candidate == 1);
  REQUIRE(report.flags.size() == 1);
  CHECK(report.flags[0].code == triage::err::inf);
  CHECK(report.flags[0].only_candidate == 1);
  CHECK(report.flags[0].only_live == 0);
  CHECK(report.flags[0].example == "e");
  CHECK(std::isinf(report.max_difference));
}

TEST_CASE(
    "a shadow that does the same differs in nothing: other bits of a NaN, inference mode, gradients, one tensor "
    "twice") {
  Runtime runtime;
  const Policy policy = runtime.load_source("inputs z w\noutputs z w f\nmul 2\nflags", "p.fake");
  at::Tensor z = at::randn({6, 5});
  z[2][1] = bad;
  policy.run({z, z});
  policy.shadow_source("inputs z w\noutputs z w f\nadd 0\nmul 2\nflags", {.share = 1});
  policy.run({z, z});
  {
    const c10::InferenceMode inference;
    policy.run({z, at::ones({6})});
    policy.run({at::ones({6, 5}), at::ones({6})});
  }
  policy.run({z.clone().requires_grad_(), z});
  policy.run({z, z}, {.donate = {0}});
  const ShadowReport report = after(policy, 5);
  CHECK(report.compared == 5);
  CHECK(report.different == 0);
  CHECK(report.max_difference == 0);
  CHECK(report.flags.empty());
}

TEST_CASE("the host may write to tensors of a call that a shadow is still to see") {
  Runtime runtime;
  const Policy policy = runtime.load_source("outputs z\nadd 1", "p.fake");
  policy.run({at::zeros({4, 2})});
  policy.shadow_source("outputs z\nbreak\nadd 1", {.share = 1});
  for (int i = 0; i < 50; ++i) {
    at::Tensor z = at::full({4, 2}, static_cast<float>(i));
    at::Tensor out = policy.run({z})[0];
    z.fill_(-1);
    out.fill_(-2);
  }
  const ShadowReport report = after(policy, 50);
  CHECK(report.different == 0);
  CHECK(report.compared + report.dropped == 50);
}

TEST_CASE("differences up to the tolerance are none") {
  Runtime runtime;
  const Policy policy = runtime.load_source("outputs z\nadd 1", "p.fake");
  policy.shadow_source("outputs z\nadd 1.125", {.share = 1, .tolerance = 0.125});
  policy.run({at::zeros({4, 2})});
  CHECK(after(policy, 1).different == 0);
}

TEST_CASE("a call with a param that the shadow does not allow cannot be compared") {
  Runtime runtime;
  const Policy policy = runtime.load_source("param a 1.0 0 10\nadd_param a", "p.fake");
  policy.shadow_source("param a 1.0 0 2\nadd_param a", {.share = 1});
  CHECK(first(policy.run({at::zeros({4})}, {.params = {{"a", 5.0}}})) == 5.0f);
  const ShadowReport report = after(policy, 1);
  CHECK(report.not_comparable == 1);
  CHECK(report.why_not == "policy 'p': param 'a' must lie between 0 and 2, got 5");
}

TEST_CASE("a shadow that fails is counted, and no call notices") {
  Runtime runtime;
  const Policy policy = runtime.load_source("outputs z\nadd 1", "p.fake");
  policy.shadow_source("outputs z\nraise_above 3\nadd 1", {.share = 1});
  CHECK(first(policy.run({at::full({4, 2}, 9.0f)})) == 10.0f);
  CHECK(first(policy.run({at::zeros({4, 2})})) == 1.0f);
  const ShadowReport report = after(policy, 2);
  CHECK(report.failed == 1);
  CHECK(report.compared == 1);
  CHECK(policy.candidate()->last_failure == "too large");
  CHECK(policy.candidate()->state == CandidateState::running);
  CHECK(policy.statistics().total.answered(Answered::failed) == 0);
}

TEST_CASE("an answer of a shadow in another form is a failure") {
  Runtime runtime;
  const Policy policy = runtime.load_source("outputs z\nadd 1", "p.fake");
  policy.shadow_source("outputs z\ndouble_above 3\nadd 1", {.share = 1});
  policy.run({at::full({4, 2}, 9.0f)});
  CHECK(after(policy, 1).failed == 1);
  CHECK(policy.candidate()->last_failure.find("the candidate changes the type of output 'z' from Float to Double") ==
        0);
}

TEST_CASE("functions of the host are not called by a shadow: the report says that it could not be compared") {
  Runtime runtime;
  std::atomic<int> calls{0};
  runtime.define("f", [&](const std::vector<at::Tensor>& in) {
    ++calls;
    return in;
  });
  const Policy policy = runtime.load_source("outputs z\nadd 1", "p.fake");
  policy.run({at::zeros({4, 2})});
  policy.shadow_source("outputs z\nhost f\nadd 1", {.share = 1});
  for (int i = 0; i < 5; ++i) policy.run({at::zeros({4, 2})});
  const ShadowReport report = after(policy, 5);
  CHECK(report.compared == 0);
  CHECK(report.not_comparable + report.dropped == 5);
  CHECK(report.why_not == "the candidate calls a function of the host");
  CHECK(policy.candidate()->notes.at(0) == "no call could be compared: the candidate calls a function of the host");
  CHECK(calls == 0);
}

TEST_CASE(
    "a shadow with a share sees it, a full queue drops, and what the live version did not answer is not compared") {
  Runtime runtime;
  const Policy policy = runtime.load_source("outputs z\nraise_above 100\nadd 1", "p.fake");
  policy.shadow_source("outputs z\nadd 1", {.share = 0.25});
  for (int i = 0; i < 40; ++i) policy.run({at::zeros({4, 2})});
  CHECK(after(policy, 10).compared + shadow_of(policy).dropped == 10);
  policy.end_candidate();

  policy.shadow_source("outputs z\nadd 1", {.share = 1, .queue_bytes = 10});
  policy.run({at::zeros({4, 2})});
  CHECK(after(policy, 1).dropped == 1);
  CHECK_THROWS(policy.run({at::full({4, 2}, 200.0f)}));
  CHECK(after(policy, 2).not_comparable == 1);
  CHECK(shadow_of(policy).why_not == "the live version did not answer");
}

TEST_CASE("a shadow may be promoted, and compares with the version that is live") {
  Runtime runtime;
  const Policy policy = runtime.load_source("outputs z\nadd 1", "p.fake");
  policy.shadow_source("outputs z\nadd 2", {.share = 1});
  policy.run({at::zeros({4, 2})});
  CHECK(after(policy, 1).different == 4);
  REQUIRE(policy.replace("outputs z\nadd 1\nadd 1") == triage::Reload::swapped);
  CHECK(policy.candidate()->restarts == 1);
  policy.run({at::zeros({4, 2})});
  CHECK(after(policy, 1).different == 0);
  CHECK(policy.candidate()->live_version == 3);
  policy.promote();
  CHECK(policy.candidate()->state == CandidateState::promoted);
  CHECK(policy.version().number == 2);
}

TEST_CASE("a shadow ends with its Runtime, also while calls wait; the policy goes on") {
  Policy policy;
  {
    Runtime runtime;
    policy = runtime.load_source("outputs z\nadd 1", "p.fake");
    policy.shadow_source("outputs z\nbreak\nadd 2", {.share = 1});
    for (int i = 0; i < 100; ++i) policy.run({at::zeros({4, 2})});
  }
  CHECK(policy.candidate()->state == CandidateState::ended);
  CHECK(policy.candidate()->reason == "the Runtime is gone");
  RunInfo info;
  CHECK(first(policy.run({at::zeros({4, 2})}, {.info = &info})) == 1.0f);
  CHECK(info.answered == Answered::live);
}

TEST_CASE("a report as text and as JSON") {
  Runtime runtime;
  const Policy policy = runtime.load_source("name repair\noutputs z f\nflags", "p.fake");
  at::Tensor z = at::ones({3, 2});
  z[1][0] = bad;
  policy.run({z});
  policy.shadow_source("name repair\noutputs z f\nadd 0.5\nflags", {.share = 1});
  policy.run({z}, {.decision_id = "d1"});
  after(policy, 1);
  const CandidateReport report = policy.end_candidate();
  CHECK(report.state == CandidateState::ended);
  const std::string text = report.text();
  CHECK(text.find("repair: shadow of p.fake, version 2 (source " + report.hash +
                  "), share 100 %: ended: by the host\n") == 0);
  CHECK(text.find("  compared   1 calls, 3 samples; 0 failed, 0 dropped, 0 not comparable\n") != std::string::npos);
  CHECK(text.find("  repaired   3 samples differently, 2 of them flagged by neither; largest difference 0.5\n") !=
        std::string::npos);
  CHECK(text.find("             decision d1, sample 0, output z: 0.5\n") != std::string::npos);
  const std::string json = report.json();
  CHECK(json.find("{\"kind\":\"shadow\",\"state\":\"ended\",\"policy\":\"repair\"") == 0);
  CHECK(json.find("\"max_difference\":0.5") != std::string::npos);
  CHECK(json.find('\n') == std::string::npos);
}

TEST_CASE("metrics have the candidate and its calls") {
  Runtime runtime;
  const Policy policy = runtime.load_source("outputs z\nadd 1", "p.fake");
  CHECK(metrics_text(runtime).find("triage_candidate{") == std::string::npos);
  const triage::VersionInfo shadow = policy.shadow_source("outputs z\nadd 2", {.share = 1});
  policy.run({at::zeros({4, 2})});
  after(policy, 1);
  const std::string labels = "{policy=\"p\",path=\"p.fake\",version=\"2\",hash=\"" + shadow.hash + "\",kind=\"shadow\"";
  CHECK(metrics_text(runtime).find("triage_candidate" + labels + "} 1\n") != std::string::npos);
  CHECK(metrics_text(runtime).find("triage_shadow_calls" + labels + ",result=\"compared\"} 1\n") != std::string::npos);
  policy.end_candidate();
  CHECK(metrics_text(runtime).find("triage_candidate{") == std::string::npos);
  policy.canary_source("outputs z\nadd 2", {.share = 1});
  policy.run({at::zeros({4, 2})});
  const std::string text = metrics_text(runtime);
  CHECK(text.find("version=\"3\",hash=\"" + shadow.hash + "\",answered=\"canary\"") != std::string::npos);
  CHECK(text.find("triage_candidates_total{policy=\"p\",path=\"p.fake\",event=\"started\"} 2\n") != std::string::npos);
}

TEST_CASE(
    "shadows of two policies come and go while four threads call: no failed call, and every one is accounted for") {
  const int destroyed_before = fake::destroyed_by_caller, alive_before = fake::alive;
  {
    Runtime runtime;
    const Policy one = runtime.load_source("outputs z v\npair 1", "one.fake");
    const Policy two = runtime.load_source("outputs z\nadd 1", "two.fake");
    std::atomic<int> failed{0};
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, one, two] {
        fake::is_caller = true;
        const at::Tensor z = at::rand({8, 4});
        while (!stop) try {
            if (!at::equal(one.run({z})[0], z + 1) || first(two.run({at::zeros({2, 2})})) != 1.0f) ++failed;
          } catch (const std::exception&) {
            ++failed;
          }
      });
    const auto step = [&](int i) {
      one.shadow_source("outputs z v\nadd 0\npair 1\nadd " + std::to_string(i), {.share = 1});
      two.shadow_source("outputs z\nraise_above 100\nadd 1", {.share = 0.5});
      const ShadowReport report = after(one, 50);
      CHECK(report.different == (i == 0 ? 0 : 8 * report.compared));
      CHECK(report.failed == 0);
      after(two, 10);
      one.end_candidate();
      two.end_candidate();
    };
    for (int i = 0; i < 20; ++i) CHECK(fake::message_of([&] { step(i); }) == "");
    two.shadow_source("outputs z\nadd 2", {.share = 1});
    stop = true;
    for (auto& thread : threads) thread.join();
    CHECK(failed == 0);
  }
  CHECK(fake::destroyed_by_caller == destroyed_before);
  CHECK(fake::alive == alive_before);
}
