// A new version beside the live one, through the C interface.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "host.h"

namespace triage::test {
namespace {

namespace fs = std::filesystem;

const std::string other_source =
    "return policy { name = 'repair', inputs = { 'z' }, outputs = { 'z', 'flags' },\n"
    "  params = { fallback = 0.0 },\n"
    "  run = function(z, p) return fix(z, flag_nan(z, 'logits'), 'logits', { fallback = 5.0 }) end }";

/// Two samples, the second of them NaN; what it is repaired to.
float repaired(const Host& host) {
  HostTensor z({1, NAN}, {2, 1});
  return host.run({&z.managed})[0].values()[1];
}

TriageCandidateReport report_of(const Host& host) {
  TriageCandidateReport report = {};
  report.size = sizeof report;
  check_ok(api().candidate(host.policy, &report));
  return report;
}

template <class Condition>
void wait_until(const Condition& condition) {
  for (int i = 0; i < 60000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(condition());
}

}  // namespace

TEST_CASE("a policy without a candidate says so") {
  const Host host;
  const TriageCandidateReport report = report_of(host);
  CHECK(report.version == 0);
  CHECK(std::string(report.reason).empty());
  check_failed(api().promote(host.policy), TRIAGE_ERROR_INPUT, {"candidate"});
  check_failed(api().end_candidate(host.policy, nullptr), TRIAGE_ERROR_INPUT, {"candidate"});
}

TEST_CASE("a shadow answers no call, and its differences are counted") {
  const Host host;
  repaired(host);
  TriageShadowOptions options = {};
  options.size = sizeof options;
  options.share = 1;
  int32_t number = 0;
  check_ok(api().shadow_source(host.policy, other_source.data(), other_source.size(), &options, &number));
  CHECK(number == 2);
  for (int i = 0; i < 10; ++i) CHECK(repaired(host) == 0);
  wait_until([&] { return report_of(host).compared == 10; });
  const TriageCandidateReport report = report_of(host);
  CHECK(report.kind == TRIAGE_CANDIDATE_SHADOW);
  CHECK(report.state == TRIAGE_CANDIDATE_RUNNING);
  CHECK(report.version == 2);
  CHECK(report.live_version == 1);
  CHECK(report.share == 1);
  CHECK(report.different == 10);
  CHECK(report.different_unflagged == 0);
  CHECK(report.max_difference == 5);
  CHECK(report.live.calls == 10);
  CHECK(report.candidate.flagged == 10);
  CHECK(std::string(report.text).find("shadow") != std::string::npos);
  CHECK(report.json[0] == '{');
  check_ok(api().promote(host.policy));
  CHECK(repaired(host) == 5);
  CHECK(report_of(host).state == TRIAGE_CANDIDATE_PROMOTED);
  check_ok(api().rollback(host.policy, 1));
  CHECK(repaired(host) == 0);
}

TEST_CASE("a canary answers its share of the calls, and the host hears of its end") {
  struct Ended {
    std::atomic<int> calls{0};
    int state = -1;
    std::string reason;
  } ended;
  const Host host;
  TriageCanaryOptions options = {};
  options.size = sizeof options;
  options.share = 1;
  options.promote_after = -1;
  options.user = &ended;
  options.on_end = [](const TriageCandidateReport* report, void* user) {
    auto* to = static_cast<Ended*>(user);
    to->state = report->state;
    to->reason = report->reason;
    ++to->calls;
  };
  const fs::path file = fs::temp_directory_path() / ("triage-canary-" + std::to_string(::getpid()) + ".lua");
  std::ofstream(file) << other_source;
  check_ok(api().canary(host.policy, file.c_str(), &options, nullptr));
  CHECK(repaired(host) == 5);
  TriageCandidateReport report = {};
  report.size = sizeof report;
  check_ok(api().end_candidate(host.policy, &report));
  CHECK(report.state == TRIAGE_CANDIDATE_ENDED);
  CHECK(report.candidate.calls == 1);
  wait_until([&] { return ended.calls == 1; });
  CHECK(ended.state == TRIAGE_CANDIDATE_ENDED);
  CHECK_FALSE(ended.reason.empty());
  CHECK(repaired(host) == 0);

  options.promote_after = 3;
  check_ok(api().canary_source(host.policy, other_source.data(), other_source.size(), &options, nullptr));
  for (int i = 0; i < 3; ++i) repaired(host);
  wait_until([&] { return ended.calls == 2; });
  CHECK(ended.state == TRIAGE_CANDIDATE_PROMOTED);
  CHECK(repaired(host) == 5);
  fs::remove(file);
}

TEST_CASE("the end of a canary may free all handles") {
  struct Handles {
    TriageRuntime* runtime = nullptr;
    TriagePolicy* policy = nullptr;
    std::atomic<bool> done{false};
  } handles;
  TriageRuntimeOptions runtime_options = {};
  runtime_options.size = sizeof runtime_options;
  runtime_options.log = [](const TriageLogRecord*, void*) {};
  check_ok(api().create_runtime(&runtime_options, &handles.runtime));
  const std::string source = repair_source;
  check_ok(api().load_source(handles.runtime, source.data(), source.size(), "repair.lua", &handles.policy));
  TriageCanaryOptions options = {};
  options.size = sizeof options;
  options.user = &handles;
  options.on_end = [](const TriageCandidateReport*, void* user) {
    auto* all = static_cast<Handles*>(user);
    CHECK(api().free_policy(all->policy) == TRIAGE_OK);
    CHECK(api().free_runtime(all->runtime) == TRIAGE_OK);
    all->done = true;
  };
  check_ok(api().canary_source(handles.policy, other_source.data(), other_source.size(), &options, nullptr));
  check_ok(api().end_candidate(handles.policy, nullptr));
  wait_until([&] { return handles.done.load(); });
}

TEST_CASE("a candidate that cannot be is refused with the line, and options out of range by name") {
  const Host host;
  int32_t number = 7;
  check_failed(api().shadow_source(host.policy, "x(", 2, nullptr, &number), TRIAGE_ERROR_LOAD, {"repair.lua:1"});
  CHECK(number == 0);
  check_failed(api().canary(host.policy, "/no/such/file.lua", nullptr, nullptr), TRIAGE_ERROR_FILE, {"file.lua"});
  check_failed(api().canary(host.policy, nullptr, nullptr, nullptr), TRIAGE_ERROR_ARGUMENT, {"canary: `path` is null"});
  TriageShadowOptions shadow = {};
  shadow.size = sizeof shadow;
  shadow.share = 2;
  check_failed(api().shadow_source(host.policy, other_source.data(), other_source.size(), &shadow, nullptr),
               TRIAGE_ERROR_INPUT, {"share"});
  shadow.share = 0;
  shadow.queue = -2;
  check_failed(api().shadow_source(host.policy, other_source.data(), other_source.size(), &shadow, nullptr),
               TRIAGE_ERROR_ARGUMENT, {"options->queue", "-2"});
  TriageCanaryOptions canary = {};
  canary.size = sizeof canary;
  canary.p99_ratio = NAN;
  check_failed(api().canary_source(host.policy, other_source.data(), other_source.size(), &canary, nullptr),
               TRIAGE_ERROR_ARGUMENT, {"options->p99_ratio"});
}

}  // namespace triage::test
