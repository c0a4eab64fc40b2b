// The gates behind the tests of a new version: one that is much slower than the live one, and one that breaks its
// graph.
#include "tests/logs.h"
#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <rapidcheck.h>
#include <triage/bundle.h>
#include <triage/triage.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <sstream>
#include <thread>

#include "runtime/policy/bundles/manifest.h"
#include "runtime/policy/core/latency_gate.h"

using triage::CandidateState;
using triage::Policy;
using triage::Reload;
using triage::ReloadGate;
using triage::Runtime;
using triage::RuntimeOptions;
using triage::policy::CallTimes;
using triage::test::first;
using triage::test::says;

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// A policy file, and functions of the host: `slow` and `slower` are pure, and sleep; `impure` is not.
struct Scene {
  explicit Scene(RuntimeOptions options = {}, const std::string& source = "add 1") {
    options.log = triage::test::log_to(text);
    runtime.emplace(std::move(options));
    const auto sleeper = [this](std::atomic<int>& milliseconds_of_call) {
      return [this, &milliseconds_of_call](const std::vector<at::Tensor>& in) {
        ++pure_calls;
        if (on_pure_call) on_pure_call();
        std::this_thread::sleep_for(milliseconds(milliseconds_of_call));
        return std::vector<at::Tensor>{in[0] * 1};
      };
    };
    runtime->define("slow", sleeper(slow_ms), {.pure = true});
    runtime->define("slower", sleeper(slower_ms), {.pure = true});
    runtime->define("impure", [this](const std::vector<at::Tensor>& in) {
      ++impure_calls;
      return std::vector<at::Tensor>{in[0] * 1};
    });
    fake::write(file, source);
    policy = runtime->load(file);
  }
  Reload save(const std::string& source) const {
    fake::write(file, source);
    return policy.reload();
  }
  std::string why() const {
    const auto error = policy.version().last_error;
    return error ? error->message : "";
  }

  fake::Folder folder;
  const std::filesystem::path file = folder / "p.fake";
  std::ostringstream text;
  std::atomic<int> slow_ms{20}, slower_ms{20}, pure_calls{0}, impure_calls{0};
  std::function<void()> on_pure_call;
  std::optional<Runtime> runtime;
  Policy policy;
};

at::Tensor zeros(at::ScalarType dtype = at::kFloat) { return at::zeros({4, 2}, dtype); }

/// Sources that take 20 ms where the live one takes microseconds: in a graph, between breaks, with state, for another
/// kind of inputs.
const char* const slow_sources[] = {"host slow\nadd 2", "count\nhost slow\nadd 2", "remember\nhost slow\nadd 2",
                                    "param more 0.5\nhost slow\nadd_param more", "for_double host slow\nadd 2"};

}  // namespace

TEST_CASE(
    "a version that is slower than the live one by more than the ratio stays out, however it computes and wherever it "
    "comes from") {
  for (const char* const source : slow_sources) {
    CAPTURE(source);
    for (const bool from_file : {true, false}) {
      Scene scene;
      scene.policy.run({zeros()});
      scene.policy.run({zeros(at::kDouble)});
      CHECK((from_file ? scene.save(source) : scene.policy.replace(source)) == Reload::refused);
      CHECK(first(scene.policy.run({zeros()})) == 1.0f);
      CHECK(scene.policy.version().number == 1);
      CHECK(scene.policy.versions().size() == 1);
      for (const char* const part :
           {"slower than version 1", "[4, 2]", " ms", "reload_latency_ratio allows 10 times", "on_slow_reload"})
        CHECK_MESSAGE(says(scene.why(), part), scene.why());
      CHECK(says(scene.policy.version().last_error->source.file, "p.fake"));
      CHECK(scene.policy.statistics().refused == 1);
      CHECK(says(scene.text.str(), "was refused, version 1 stays live: "));
      CHECK(scene.save("add 3") == Reload::swapped);  // the next one is measured for itself
      CHECK(first(scene.policy.run({zeros()})) == 3.0f);
    }
  }
}

TEST_CASE("a version that a gate stops has a line in the decision log, as any refusal has; a shadow has one more") {
  for (const ReloadGate gate : {ReloadGate::refuse, ReloadGate::shadow}) {
    std::vector<std::string> lines;
    triage::DecisionLogOptions to_memory;
    to_memory.on_line = [&](std::string_view line) { lines.emplace_back(line); };
    const auto log = std::make_shared<triage::DecisionLog>(to_memory);
    Scene scene({.on_slow_reload = gate, .decisions = log});
    scene.policy.run({zeros()});
    CHECK(scene.save(slow_sources[0]) == Reload::refused);
    log->flush();
    const auto count = [&](const std::string& event) {
      return std::count_if(lines.begin(), lines.end(),
                           [&](const std::string& line) { return says(line, "\"event\":\"" + event + "\""); });
    };
    CHECK(count("refused") == 1);
    CHECK(count("candidate_started") == (gate == ReloadGate::shadow));
    CHECK(count("live") == 1);
    CHECK(says(lines.back(), "slower than version 1"));
  }
}

TEST_CASE("the host says what becomes of a slow version") {
  const char* const slow = slow_sources[0];
  {
    Scene scene({.reload_latency_ratio = 0});
    scene.policy.run({zeros()});
    CHECK(scene.save(slow) == Reload::swapped);
    CHECK_FALSE(says(scene.text.str(), "slower"));
  }
  {
    Scene scene({.on_slow_reload = ReloadGate::warn});
    scene.policy.run({zeros()});
    CHECK(scene.save(slow) == Reload::swapped);
    CHECK(first(scene.policy.run({zeros()})) == 2.0f);
    CHECK(says(scene.text.str(), "[warn] policy 'p': the new source is slower than version 1"));
  }
  Scene scene({.reload_latency_ratio = 1e9});
  scene.policy.run({zeros()});
  CHECK(scene.save(slow) == Reload::swapped);
}

TEST_CASE("a slow version in the shadow: it answers no call, the host may make it live, and the next reload ends it") {
  Scene scene({.on_slow_reload = ReloadGate::shadow});
  scene.policy.run({zeros()});
  CHECK(scene.save(slow_sources[0]) == Reload::refused);
  CHECK(says(scene.why(), "It runs in the shadow of the live version, as version 2"));
  REQUIRE(scene.policy.candidate());
  CHECK(scene.policy.candidate()->state == CandidateState::running);
  CHECK(scene.policy.candidate()->kind == triage::CandidateKind::shadow);
  CHECK(first(scene.policy.run({zeros()})) == 1.0f);

  CHECK(scene.save("host slow\nadd 4") == Reload::refused);  // takes the place of the other one
  CHECK(scene.policy.candidate()->version == 3);
  CHECK(scene.policy.candidate()->state == CandidateState::running);
  CHECK(scene.save("add 5") == Reload::swapped);
  CHECK(scene.policy.candidate()->state == CandidateState::ended);
  CHECK(says(scene.policy.candidate()->reason, "by a reload"));

  CHECK(scene.save("host slow\nadd 6") == Reload::refused);
  scene.policy.promote();
  CHECK(first(scene.policy.run({zeros()})) == 6.0f);

  Scene busy({.on_slow_reload = ReloadGate::shadow});
  busy.policy.run({zeros()});
  busy.policy.shadow_source("add 9");
  CHECK(busy.save(slow_sources[0]) == Reload::refused);
  CHECK(says(busy.why(), "It does not run in the shadow: policy 'p' has a candidate already, version 2"));
  CHECK(busy.policy.candidate()->version == 2);
  CHECK(busy.save("add 5") == Reload::swapped);
  CHECK(busy.policy.candidate()->state == CandidateState::running);  // the host's
}

TEST_CASE("the same for a policy of a bundle: none of its policies changes") {
  for (const ReloadGate gate : {ReloadGate::refuse, ReloadGate::shadow}) {
    fake::Folder folder;
    const std::filesystem::path dir = folder / "pair";
    std::filesystem::create_directories(dir);
    const auto pack = [&](const std::string& a, const std::string& b, const std::string& version) {
      fake::write(dir / "a.fake", a);
      fake::write(dir / "b.fake", b);
      auto manifest = triage::policy::list_folder(dir);
      manifest.name = "pair";
      manifest.version = version;
      fake::rename_save(dir / "bundle.json", manifest.text());
    };
    Runtime runtime({.log = triage::test::no_log(), .on_slow_reload = gate});
    runtime.define("slow",
                   [](const std::vector<at::Tensor>& in) {
                     std::this_thread::sleep_for(milliseconds(20));
                     return std::vector<at::Tensor>{in[0] * 1};
                   },
                   {.pure = true});
    pack("add 1", "add 1", "1");
    const triage::Bundle bundle = runtime.load_bundle(dir);
    const Policy a = bundle.policy("a"), b = bundle.policy("b");
    a.run({zeros()});
    b.run({zeros()});
    pack("add 2", "host slow\nadd 2", "2");
    CHECK(bundle.reload() == Reload::refused);
    CHECK(first(a) == 1.0f);
    CHECK(first(b) == 1.0f);
    REQUIRE(bundle.version().last_error);
    CHECK(says(bundle.version().last_error->message, "slower than version 1"));
    CHECK(b.candidate().has_value() == (gate == ReloadGate::shadow));
    CHECK_FALSE(a.candidate());
    pack("add 3", "add 3", "3");
    CHECK(bundle.reload() == Reload::swapped);
    CHECK((!b.candidate() || b.candidate()->state == CandidateState::ended));
  }
}

TEST_CASE(
    "a version that takes as long as the live one is no slow one; neither is what takes less than a millisecond") {
  Scene scene({}, "host slow\nadd 1");
  scene.slow_ms = scene.slower_ms = 3;
  scene.policy.run({zeros()});
  CHECK(scene.save("host slower\nadd 2") == Reload::swapped);
  CHECK(scene.save("host slower\nhost slow\nadd 2") == Reload::swapped);

  Scene small({.reload_latency_ratio = 1});
  small.slow_ms = 0;
  small.policy.run({zeros()});
  CHECK(small.save("host slow\nhost slow\nhost slow\nadd 2") == Reload::swapped);
}

TEST_CASE("without calls so far there is nothing to time; a way back is open, however slow") {
  Scene scene;
  CHECK(scene.save("host slow\nadd 2") == Reload::swapped);
  scene.policy.run({zeros()});
  CHECK(scene.save("add 3") == Reload::swapped);
  CHECK(scene.save("host slow\nadd 2") == Reload::swapped);
}

TEST_CASE("the measurement calls no function of the host that is not pure, and leaves no trace") {
  Scene scene({}, "remember\nadd 1");
  scene.policy.run({zeros()});
  const auto calls = scene.policy.statistics().total.calls();
  scene.slow_ms = 2;
  CHECK(scene.save("remember\nhost slow\nadd 1") != Reload::unchanged);
  CHECK(scene.policy.statistics().total.calls() == calls);
  CHECK(first(scene.policy.run({zeros()})) == 2.0f);  // one call was answered before

  Scene impure;
  impure.policy.run({zeros()});
  CHECK(impure.save("host impure\nhost slow\nadd 2") == Reload::swapped);
  CHECK(impure.impure_calls == 0);
  CHECK(says(impure.text.str(), "[info] policy 'p': the new source was not timed for inputs of sizes [4, 2]"));
}

TEST_CASE("a decision of the host overtakes a reload that is timing (threads)") {
  const auto calls_of_reload = [](double ratio) {
    Scene scene({.reload_latency_ratio = ratio});
    scene.policy.run({zeros()});
    scene.save("host slow\nadd 2");
    return scene.pure_calls.load();
  };
  const int before_timing = calls_of_reload(0);
  REQUIRE(calls_of_reload(10) > before_timing);
  Scene scene;
  scene.policy.run({zeros()});
  std::atomic<bool> is_timing{false}, is_decided{false};
  scene.on_pure_call = [&] {
    if (scene.pure_calls <= before_timing || is_decided) return;
    is_timing = true;
    fake::eventually([&] { return is_decided.load(); });
  };
  std::thread reload([&] { CHECK(scene.save("host slow\nadd 2") == Reload::refused); });
  CHECK(fake::eventually([&] { return is_timing.load(); }));
  scene.policy.rollback(1);
  is_decided = true;
  reload.join();
  CHECK_MESSAGE(says(scene.why(), "was cancelled, because version 1 was rolled back to"), scene.why());
  CHECK(scene.pure_calls == before_timing + 1);
}

TEST_CASE("of the times of two versions: the floor, the ratio, and no haste") {
  CHECK(rc::check([] {
    CallTimes times;
    const double ratio = 1 + *rc::gen::inRange(0, 2000) / 100.0;
    const int rounds = *rc::gen::inRange(1, 130);
    const int64_t longest = *rc::gen::element<int64_t>(2'000'000, 400'000'000);  // ns
    for (int i = 0; i < rounds; ++i) {
      const auto before = nanoseconds(*rc::gen::inRange<int64_t>(1, longest / 10)),
                 next = nanoseconds(*rc::gen::inRange<int64_t>(1, longest));
      times.note(before, next);
      const bool is_over = times.next > milliseconds(1) &&
                           static_cast<double>(times.next.count()) > ratio * static_cast<double>(times.before.count());
      const auto verdict = times.judge(ratio);
      if (verdict == CallTimes::Verdict::slow) RC_ASSERT(is_over && times.rounds >= 2);
      if (verdict == CallTimes::Verdict::fast_enough) RC_ASSERT(!is_over);
      if (times.rounds >= CallTimes::most_rounds) RC_ASSERT((verdict == CallTimes::Verdict::slow) == is_over);
      if (times.rounds < CallTimes::most_rounds && times.spent < std::chrono::seconds(1))
        RC_ASSERT(verdict != CallTimes::Verdict::slow);
    }
  }));
  CHECK(CallTimes().judge(10) == CallTimes::Verdict::undecided);
}

TEST_CASE(
    "a version that breaks its graph where the live one does not: the log says where, and the host may keep it out") {
  struct Broken {
    const char *source, *what;
  };
  for (const Broken& next :
       {Broken{"add 2\nbreak", "`break` reads a value"}, Broken{"add 2\ncount", "`count` remembers a number"},
        Broken{"host impure\nadd 2", "`impure` is a function of the host"}}) {
    CAPTURE(next.source);
    Scene warned;
    warned.policy.run({zeros()});
    CHECK(warned.save(next.source) == Reload::swapped);
    CHECK_MESSAGE(says(warned.text.str(), "[warn] policy 'p': the new source breaks its graph"), warned.text.str());
    CHECK(says(warned.text.str(), next.what));
    CHECK(warned.save(std::string(next.source) + "\nadd 1") ==
          Reload::swapped);  // the live one breaks its graph as well
    const std::string log = warned.text.str();
    CHECK(log.find("the new source breaks its graph") == log.rfind("the new source breaks its graph"));
    CHECK(warned.impure_calls == 0);

    Scene strict({.on_new_graph_breaks = ReloadGate::refuse});
    strict.policy.run({zeros()});
    CHECK(strict.save(next.source) == Reload::refused);
    CHECK_MESSAGE(says(strict.why(), next.what), strict.why());
    CHECK(says(strict.why(), "on_new_graph_breaks"));
    CHECK(first(strict.policy.run({zeros()})) == 1.0f);
    CHECK(strict.policy.shadow_source(next.source).candidate);  // a candidate only warns
    CHECK(says(strict.text.str(), "[warn] policy 'p': the new source breaks its graph"));

    Scene shadow({.on_new_graph_breaks = ReloadGate::shadow});
    shadow.policy.run({zeros()});
    CHECK(shadow.save(next.source) == Reload::refused);
    REQUIRE(shadow.policy.candidate());
    CHECK(shadow.policy.candidate()->state == CandidateState::running);

    Scene broken({.on_new_graph_breaks = ReloadGate::refuse}, "break\nadd 1");
    broken.policy.run({zeros()});
    CHECK(broken.save(next.source) == Reload::swapped);
  }
}

TEST_CASE("options of gates and trials that are out of range name themselves") {
  const auto refused = [](const RuntimeOptions& options) {
    try {
      const Runtime runtime(options);
    } catch (const triage::ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const double nan = std::nan("");
  for (const double ratio : {nan, -1.0, 0.5, 0.999})
    CHECK(says(refused({.reload_latency_ratio = ratio}), "RuntimeOptions::reload_latency_ratio is "));
  for (const double seconds : {nan, -1.0})
    CHECK(says(refused({.trial_seconds = seconds}), "RuntimeOptions::trial_seconds is "));
  const auto odd = static_cast<ReloadGate>(3);
  CHECK(says(refused({.on_slow_reload = odd}), "RuntimeOptions::on_slow_reload is 3"));
  CHECK(says(refused({.on_new_graph_breaks = odd}), "RuntimeOptions::on_new_graph_breaks is 3"));
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double fine : {1.0, 1e300, infinity})
    CHECK(refused({.trial_seconds = fine, .reload_latency_ratio = fine}).empty());
}

TEST_CASE("a trial lasts as long as the host says, and its calls: each alone does not end it") {
  using triage::policy::Trial;
  const std::vector<at::Tensor> inputs = {zeros()};
  const Trial::Clock::time_point begin = Trial::Clock::now();
  CHECK(rc::check([&] {
    const size_t calls = *rc::gen::inRange<size_t>(1, 6);
    const auto time = std::chrono::seconds(*rc::gen::inRange(0, 10));
    Trial trial;
    trial.begin({}, {calls, time});
    RC_ASSERT(trial.on() && trial.compares());
    size_t answered = 0;
    auto now = begin;
    while (trial.on()) {
      const auto progress = trial.pass(inputs, now);
      ++answered;
      RC_ASSERT(trial.compares() == (answered < calls));
      RC_ASSERT((progress == Trial::Progress::over) == !trial.on());
      RC_ASSERT(trial.on() == (answered < calls || now - begin < time));
      RC_ASSERT(trial.only_waits(now) == (trial.on() && !trial.compares()));
      now += std::chrono::milliseconds(*rc::gen::inRange(0, 4000));
    }
  }));
  Trial of_candidate;
  of_candidate.begin({}, {2, std::chrono::hours(1)});
  of_candidate.pass_beside(inputs);
  CHECK(of_candidate.on());
  of_candidate.pass_beside(inputs);
  CHECK_FALSE(of_candidate.on());  // a candidate has rules of its own
  Trial none;
  none.begin({}, {0, std::chrono::hours(1)});
  CHECK_FALSE(none.on());
}

TEST_CASE(
    "after its calls a version that waits for the end of its trial is taken back for one failure, and compares no more "
    "forms") {
  Scene scene({.trial_calls = 3, .trial_seconds = 1e6}, "host slow\nadd 1");
  scene.slow_ms = 0;
  scene.policy.run({zeros()});
  REQUIRE(scene.save("add 2\nfor_double raise why") == Reload::swapped);
  for (int i = 0; i < 3; ++i) scene.policy.run({zeros()});
  const int asked = scene.pure_calls;
  for (int rows = 5; rows < 300; ++rows) CHECK(first(scene.policy.run({at::zeros({rows, 2})})) == 2.0f);
  CHECK(scene.pure_calls == asked);
  CHECK(scene.policy.version().on_trial);
  CHECK(first(scene.policy.run({zeros(at::kDouble)})) == 1.0f);
  CHECK(scene.policy.version().number == 1);

  Scene ended({.trial_calls = 3, .trial_seconds = 0});
  ended.policy.run({zeros()});
  REQUIRE(ended.save("add 2") == Reload::swapped);
  for (int i = 0; i < 3; ++i) ended.policy.run({zeros()});
  CHECK_FALSE(ended.policy.version().on_trial);
}
