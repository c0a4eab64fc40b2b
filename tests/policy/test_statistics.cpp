#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <triage/triage.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/paths.h"

using triage::Answered;
using triage::CallForm;
using triage::CallStatistics;
using triage::FailureKind;
using triage::OnError;
using triage::Policy;
using triage::RunInfo;
using triage::Runtime;
using triage::test::batch;

namespace {

const float nan = std::nanf("");

/// The system's own has Debian's packages, whichever is first on PATH. Empty where none has it.
std::string python_with_prometheus_client() {
  for (const char* python : {"python3", "/usr/bin/python3"})
    if (std::system((std::string(python) + " -c 'import prometheus_client' 2>/dev/null").c_str()) == 0) return python;
  return "";
}

uint64_t failures(const CallStatistics& calls, FailureKind kind) { return calls.failures[static_cast<size_t>(kind)]; }

}  // namespace

TEST_CASE("RunInfo says which version answered a call, and how") {
  Runtime runtime({.backend = "fused"});
  const Policy policy = runtime.load_source("outputs z f\nmul 2\nflags", "p.fake");
  RunInfo info;
  policy.run({batch(4, 1)}, {.info = &info});
  CHECK(info.version == 1);
  CHECK(info.hash == policy.version().hash);
  CHECK(info.answered == Answered::live);
  CHECK(info.form == CallForm::capture);
  CHECK(info.time.count() > 0);
  CHECK(info.failure.empty());

  policy.run({batch(4, 1)}, {.info = &info});
  CHECK(info.form == CallForm::graph);
  CHECK(info.loops.count() > 0);
  CHECK(info.flagged == 1);
  CHECK(info.repaired == 1);  // `mul` has changed it

  const Policy script = runtime.load_source("count", "s.fake");
  for (int i = 0; i < 3; ++i) script.run({batch(2, 0)}, {.info = &info});
  CHECK((info.form == CallForm::segments || info.form == CallForm::script));
  CHECK(info.loops.count() == 0);
  CHECK(info.flagged == -1);  // no output of flags
}

TEST_CASE("statistics count every call by what answered it, and failures by kind") {
  Runtime runtime({.trial_calls = 0, .failures_to_revert = 0});
  const Policy policy = runtime.load_source("outputs z f\nfail_unless_rows 4\nflags", "p.fake");
  RunInfo info;
  policy.run({batch(4, 0)});
  policy.run({batch(4, 0)});
  CHECK_THROWS_AS(policy.run({batch(3, 0)}, {.info = &info}), triage::PolicyError);
  CHECK(info.answered == Answered::failed);
  CHECK(info.version == 1);
  CHECK(info.failure.find("mm") != std::string::npos);
  policy.run({batch(3, 0)}, {.on_error = OnError::pass_through, .info = &info});
  CHECK(info.answered == Answered::passed_through);
  CHECK(info.form == CallForm::none);
  CHECK(info.flagged == 3);   // nobody has looked at these samples: UNKNOWN
  CHECK(info.repaired == 0);  // the input itself
  CHECK_THROWS_AS(policy.run({}), triage::InputError);
  CHECK_THROWS_AS(policy.run({batch(4, 0)}, {.deadline = std::chrono::steady_clock::now() - std::chrono::hours(1)}),
                  triage::LimitError);

  REQUIRE(policy.replace("outputs z f\nadd 1\nfail_unless_rows 5\nflags") == triage::Reload::refused);
  REQUIRE(policy.replace("outputs z f\nraise_above 3\nflags") == triage::Reload::swapped);
  policy.run({batch(4, 0)}, {.info = &info});
  CHECK(info.version == 2);
  policy.run({batch(4, 0) * 5}, {.on_error = OnError::last_good, .info = &info});
  CHECK(info.answered == Answered::last_good);
  CHECK(info.version == 1);
  CHECK(info.failure.find("too large") != std::string::npos);

  const triage::PolicyStatistics all = policy.statistics();
  CHECK(all.total.calls() == 8);
  CHECK(all.total.answered(Answered::live) == 3);
  CHECK(all.total.answered(Answered::failed) == 3);
  CHECK(all.total.answered(Answered::passed_through) == 1);
  CHECK(all.total.answered(Answered::last_good) == 1);
  CHECK(failures(all.total, FailureKind::policy) == 3);
  CHECK(failures(all.total, FailureKind::input) == 1);
  CHECK(failures(all.total, FailureKind::limit) == 1);
  CHECK(all.total.samples == 4 + 4 + 3 + 4 + 4);
  CHECK(all.reloads == 2);
  CHECK(all.refused == 1);
  CHECK(all.reverted == 0);
  REQUIRE(all.versions.size() == 2);
  CHECK(all.versions[0].calls.calls() == 6);
  CHECK(all.versions[1].calls.calls() == 2);
  CHECK(all.versions[1].hash == policy.version().hash);
  CHECK(all.total.latency_quantile(0.5) >= all.total.latency_quantile(0));
  CHECK(all.total.latency_quantile(1) >= all.total.latency_quantile(0.99));
}

TEST_CASE("a call says what to do about failures; else the policy does; else the Runtime") {
  Runtime runtime({.trial_calls = 0, .failures_to_revert = 0});
  const Policy policy = runtime.load_source("outputs z\npass_through\nraise it", "p.fake");
  const at::Tensor z = batch(2, 0);
  CHECK(policy.run({z})[0].is_same(z));
  CHECK_THROWS_AS(policy.run({z}, {.on_error = OnError::raise}), triage::PolicyError);
  CHECK_THROWS_AS(policy.prepare({z}), triage::PolicyError);
  const Policy other = runtime.load_source("outputs z\nraise it", "p.fake");
  CHECK_THROWS_AS(other.run({z}), triage::PolicyError);
  CHECK(other.run({z}, {.on_error = OnError::pass_through})[0].is_same(z));
}

TEST_CASE("a call that the version before answers counts as that") {
  Runtime runtime({.trial_calls = 10, .trial_seconds = 0});
  const Policy policy = runtime.load_source("outputs z\nadd 1", "p.fake");
  policy.run({batch(2, 0)});
  REQUIRE(policy.replace("outputs z\nraise_above 3") == triage::Reload::swapped);
  RunInfo info;
  policy.run({batch(2, 0) * 9}, {.info = &info});
  CHECK(info.answered == Answered::previous);
  CHECK(info.version == 1);
  const auto all = policy.statistics();
  CHECK(all.total.answered(Answered::previous) == 1);
  CHECK(all.reverted == 1);
  REQUIRE(all.versions.size() == 2);
  CHECK(all.versions[1].calls.answered(Answered::previous) == 1);  // it was meant for version 2
}

TEST_CASE("flagged samples are counted by location, code and severity, at every batch size and width") {
  for (const auto dtype : {c10::ScalarType::Long, c10::ScalarType::Int}) {
    for (const int64_t slots : {1, 3, 16, 33}) {
      triage::ErrorConfig config;
      config.flag_dtype = dtype;
      config.num_slots = slots;
      const triage::ScopedConfig scope(config);
      Runtime runtime;
      const Policy policy = runtime.load_source("outputs z f\nmul 1\nflags", "p.fake");
      uint64_t samples = 0, bad = 0;
      for (const int64_t rows : {0, 1, 2, 31, 32, 33}) {
        for (int call = 0; call < 2; ++call) {
          const int64_t here = std::min<int64_t>(rows, 2);
          const at::Tensor odd = batch(rows, here).t().contiguous().t();  // columns first
          RunInfo info;
          policy.run({call == 0 ? batch(rows, here) : odd}, {.info = &info});
          CHECK(info.flagged == here);
          CHECK(info.repaired == 0);  // bit for bit the input
          samples += static_cast<uint64_t>(rows);
          bad += static_cast<uint64_t>(here);
        }
      }
      const CallStatistics all = policy.statistics().total;
      CHECK(all.samples == samples);
      CHECK(all.flagged == bad);
      CHECK(all.repaired == 0);
      REQUIRE(all.flags.size() == 1);
      CHECK(all.flags[0].code == triage::err::nan);
      CHECK(all.flags[0].severity == triage::err::critical);
      CHECK(all.flags[0].count == bad);
    }
  }
}

TEST_CASE("a host may ask that flags are not read") {
  Runtime runtime({.count_flags = false});
  const Policy policy = runtime.load_source("outputs z f\nmul 1\nflags", "p.fake");
  RunInfo info;
  policy.run({batch(4, 2)}, {.info = &info});
  CHECK(info.flagged == -1);
  CHECK(policy.statistics().total.samples == 0);
  CHECK(policy.statistics().total.calls() == 1);
}

TEST_CASE("names of samples must be as many as samples") {
  Runtime runtime;
  const Policy policy = runtime.load_source("outputs z\nmul 1", "p.fake");
  const std::vector<std::string> ids = {"a", "b"};
  CHECK_NOTHROW(policy.run({batch(2, 0)}, {.sample_ids = ids}));
  CHECK(fake::message_of([&] { policy.run({batch(3, 0)}, {.sample_ids = ids}); }) ==
        "policy 'p': RunOptions::sample_ids has 2 names for a batch of 3 samples");
}

TEST_CASE("counts of threads never decrease and lose no call, over reloads and after versions are gone") {
  Runtime runtime({.keep_versions = 2, .trial_calls = 1, .trial_seconds = 0});
  const Policy policy = runtime.load_source("outputs z f\nadd 1\nflags", "p.fake");
  constexpr int threads = 4, calls = 500;
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
  for (int t = 0; t < threads; ++t)
    callers.emplace_back([&policy] {
      for (int i = 0; i < calls; ++i) policy.run({batch(8, 1)});
    });
  std::thread reader([&] {
    uint64_t last_calls = 0, last_flagged = 0;
    while (!stop) {
      const CallStatistics now = policy.statistics().total;
      CHECK(now.calls() >= last_calls);
      CHECK(now.flagged >= last_flagged);
      last_calls = now.calls();
      last_flagged = now.flagged;
    }
  });
  for (int i = 2; i < 30; ++i) policy.replace("outputs z f\nadd " + std::to_string(i) + "\nflags");
  for (auto& caller : callers) caller.join();
  stop = true;
  reader.join();
  const auto all = policy.statistics();
  CHECK(all.total.calls() == threads * calls);
  CHECK(all.total.flagged == threads * calls);
  REQUIRE(all.total.flags.size() == 1);
  CHECK(all.total.flags[0].count == threads * calls);
  CHECK(all.reloads == 29);
  CHECK(fake::eventually([&] { return policy.statistics().versions.size() <= 3; }));
  CHECK(policy.statistics().total.calls() == threads * calls);
}

TEST_CASE("docs/operations.md names every metric") {
  std::ifstream file(triage::test::source_dir() + "/docs/operations.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  std::istringstream text(metrics_text(Runtime()));
  size_t count = 0;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string mark, kind, name;
    words >> mark >> kind >> name;
    if (kind != "TYPE") continue;
    ++count;
    CHECK_MESSAGE(page.find("`" + name) != std::string::npos, name << " is not on the page");
  }
  CHECK(page.find("`triage_bundle_live") != std::string::npos);  // where there is a bundle
  CHECK(count > 18);
}

TEST_CASE("metrics_text is what Prometheus' own client reads") {
  fake::Folder folder;
  Runtime runtime;
  const Policy policy = runtime.load_source("name odd\\\"name\noutputs z f\nmul 1\nflags", "p.fake");
  const Policy second = runtime.load_source("outputs z\nmul 1", "q.fake"), third = second;
  const Policy same = runtime.load_source("outputs z\nmul 1", "q.fake");
  for (int i = 0; i < 3; ++i) policy.run({batch(4, 1)});
  second.run({batch(1, 0)});
  same.run({batch(1, 0)});
  const std::string text = metrics_text(runtime);
  CHECK(text.find("# TYPE triage_call_seconds histogram\n") != std::string::npos);
  CHECK(text.find("triage_flagged_samples_total{policy=\"q\",path=\"q.fake\"} 0\n") != std::string::npos);
  CHECK(text.find(fmt::format(
            "triage_version_flagged_samples_total{{policy=\"q\",path=\"q.fake\",version=\"1\",hash=\"{}\"}} 0\n",
            second.version().hash)) != std::string::npos);
  for (const char* series : {"answered=\"failed\",form=\"none\"", "answered=\"previous\",form=\"graph\""})
    CHECK(text.find(fmt::format("triage_calls_total{{policy=\"q\",path=\"q.fake\",{}}} 0\n", series)) !=
          std::string::npos);

  const std::string python = python_with_prometheus_client();
  if (python.empty()) {
    MESSAGE("skipped: no python3 has the module prometheus_client");
    return;
  }
  fake::write(folder / "metrics.txt", text);
  fake::write(folder / "read.py", R"(
import sys
from prometheus_client.parser import text_string_to_metric_families
found, seen = {}, set()
for family in text_string_to_metric_families(open(sys.argv[1]).read()):
    for sample in family.samples:
        key = (sample.name, tuple(sorted(sample.labels.items())))
        assert key not in seen, key
        seen.add(key)
        found.setdefault(sample.name, []).append(sample)
total = lambda name, **labels: sum(s.value for s in found[name] if labels.items() <= s.labels.items())
odd = r'odd\"name'
assert total('triage_calls_total', policy=odd) == 3, found['triage_calls_total']
assert total('triage_calls_total', policy=odd, form='graph') == 2
assert total('triage_calls_total', policy='q') == 2
assert total('triage_flagged_samples_total', policy=odd) == 3
assert total('triage_errors_total', policy=odd, code='NAN', severity='CRITICAL') == 3
assert total('triage_call_seconds_count', policy=odd) == 3
assert total('triage_call_seconds_bucket', policy=odd, le='+Inf') == 3
assert total('triage_call_seconds_sum', policy=odd) > 0
assert total('triage_reloads_total', policy='q', result='live') == 2
assert total('triage_version_live', policy=odd, version='1') == 1
assert total('triage_version_samples_total', policy=odd, version='1') == 12
assert total('triage_version_flagged_samples_total', policy=odd, version='1') == 3
)");
  CHECK(std::system((python + ' ' + (folder / "read.py").string() + " " + (folder / "metrics.txt").string()).c_str()) ==
        0);
}
