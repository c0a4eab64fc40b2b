// What versions that fail, come late or do not fit each other leave behind: which one is live, which sources are
// trusted, which one stands in. The order of steps is brought about by functions of the host that wait, never by time.
#include "runtime/backends/deadline.h"
#include "runtime/operators/untrusted.h"
#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/backend.h>
#include <triage/triage.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

using triage::OnError;
using triage::Policy;
using triage::Reload;
using triage::Runtime;
using triage::test::first;

namespace {

/// A function of the host that waits inside, once it is closed, until it is opened.
class Gate {
 public:
  explicit Gate(Runtime& runtime) {
    runtime.define("gate", [this](const std::vector<at::Tensor>& in) {
      ++inside_;
      while (closed_) std::this_thread::yield();
      return in;
    });
  }
  void close() { closed_ = true; }
  void open() { closed_ = false; }
  bool entered() {
    return fake::eventually([&] { return inside_ > 0; });
  }

 private:
  std::atomic<bool> closed_{false};
  std::atomic<int> inside_{0};
};

/// Of the versions exactly one is live, and it is the one that answers.
void check_versions(const Policy& policy) {
  const auto all = policy.versions();
  const auto is_live = [](const triage::VersionInfo& info) { return info.live; };
  REQUIRE(std::count_if(all.begin(), all.end(), is_live) == 1);
  CHECK(std::find_if(all.begin(), all.end(), is_live)->number == policy.version().number);
  CHECK(std::is_sorted(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.number < b.number; }));
  for (const auto& one : all) CHECK_FALSE((one.live && one.taken_back));
}

}  // namespace

TEST_CASE("a version that was taken back is not trusted for calls that it answers afterwards (threads)") {
  fake::Folder folder;
  for (const size_t trial_calls : {1, 2}) {  // the late call ends the trial; it is the last of a kind
    const triage::RuntimeOptions options{
        .cache_dir = folder / "cache", .trial_calls = trial_calls, .trial_seconds = 0, .reload_latency_ratio = 0};
    Runtime runtime(options);
    Gate gate(runtime);
    fake::write(folder / "p.fake", "add 1");
    const Policy policy = runtime.load(folder / "p.fake");
    const at::Tensor good = at::eye(3), bad = at::zeros({3, 3}), other = at::eye(3, at::kDouble);
    policy.run({good});
    policy.run({other});
    const std::string second = "cholesky\nfor_double host gate";
    fake::write(folder / "p.fake", second);
    REQUIRE(policy.reload() == Reload::swapped);
    gate.close();
    std::thread late([&] { CHECK(first(policy.run({other})) == 1.0f); });
    REQUIRE(gate.entered());
    CHECK(first(policy.run({bad})) == 1.0f);
    CHECK(policy.version().number == 1);
    gate.open();
    late.join();
    CHECK(policy.version().number == 1);
    check_versions(policy);
    fake::write(folder / "p.fake", "broken on purpose");
    CHECK(first(Runtime(options).load(folder / "p.fake").run({good})) == 2.0f);
    fake::write(folder / "p.fake", second);
    REQUIRE(policy.reload() == Reload::swapped);
    CHECK(policy.version().on_trial);
  }
}

TEST_CASE("on_error = last_good answers with no version that is still on trial, or that was taken back") {
  Runtime runtime({.on_error = OnError::last_good, .trial_calls = 5, .trial_seconds = 0});
  const Policy policy = runtime.load_source("add 1", "p.fake");
  const at::Tensor z = at::zeros({2, 2}), large = at::full({2, 2}, 10.0);
  policy.run({z});
  REQUIRE(policy.replace("double_above 5\nadd 2") == Reload::swapped);
  CHECK(first(policy.run({z})) == 2.0f);
  REQUIRE(policy.version().on_trial);
  REQUIRE(policy.replace("raise_above 5\nadd 3") == Reload::swapped);
  for (int i = 0; i < 5; ++i) CHECK(first(policy.run({z})) == 3.0f);
  REQUIRE_FALSE(policy.version().on_trial);
  const std::vector<at::Tensor> answer = policy.run({large});
  CHECK((answer[0].scalar_type() == at::kFloat));
  CHECK(first(answer) == 11.0f);
  CHECK(policy.version().number == 3);

  policy.rollback(2);
  CHECK(first(policy.run({large})) == 11.0f);
  policy.rollback(3);
  for (int i = 0; i < 4; ++i) CHECK(first(policy.run({large})) == 11.0f);
  check_versions(policy);
}

TEST_CASE("a param that was dropped may come back as another type; a revert passes over a value that does not fit") {
  Runtime runtime({.trial_calls = 1, .trial_seconds = 0});
  const std::string with_integer = "int_param more 1\nadd_param more", with_number = "param more 0.25\nadd_param more";
  const Policy policy = runtime.load_source("add 5", "p.fake");
  const at::Tensor z = at::zeros({2});
  CHECK(first(policy.run({z})) == 5.0f);
  REQUIRE(policy.replace(with_integer) == Reload::swapped);
  CHECK(first(policy.run({z})) == 1.0f);
  REQUIRE(policy.replace("add 3") == Reload::swapped);
  policy.run({z});
  REQUIRE(policy.replace(with_number) == Reload::swapped);
  CHECK_THROWS_AS(policy.set_param("more", true), triage::InputError);
  policy.rollback(2);
  policy.rollback(4);  // the version with an integer stands in for it
  policy.set_param("more", 0.5);
  CHECK(first(policy.run({z})) == 0.5f);
  CHECK(policy.replace(with_integer) == Reload::swapped);
  check_versions(policy);
  CHECK(policy.versions().size() == 5);
  CHECK(first(policy.run({z})) == 1.0f);
  CHECK(policy.replace(with_number) == Reload::swapped);
  CHECK(first(policy.run({z})) == 0.5f);
  policy.rollback(2);
  CHECK(first(policy.run({z})) == 1.0f);
  policy.set_param("more", 7);
  CHECK(first(policy.run({z})) == 7.0f);
  check_versions(policy);
}

TEST_CASE("a value for one call that the version before cannot take does not keep it from answering") {
  Runtime runtime({.trial_calls = 1, .trial_seconds = 0});
  const Policy policy = runtime.load_source("add 5", "p.fake");
  const at::Tensor z = at::zeros({2}), large = at::full({2}, 10.0);
  policy.run({z});
  REQUIRE(policy.replace("int_param more 1\nadd_param more") == Reload::swapped);
  policy.run({z});  // its trial is over: it may stand in
  REQUIRE(policy.replace("add 3") == Reload::swapped);
  policy.run({z});
  REQUIRE(policy.replace("param more 0.25\nadd_param more\nraise_above 5") == Reload::swapped);
  policy.rollback(2);
  policy.rollback(4);
  CHECK(first(policy.run({large}, {.params = {{"more", 0.5}}})) == 11.0f);
  CHECK(policy.version().number == 2);
}

TEST_CASE("the live version is among those that are kept, however few are") {
  for (const size_t keep : {0, 1, 2, 3}) {
    CAPTURE(keep);
    Runtime runtime({.keep_versions = keep});
    const Policy policy = runtime.load_source("add 1", "p.fake");
    const at::Tensor z = at::zeros({2}), large = at::full({2}, 10.0);
    policy.run({z});
    for (int i = 2; i <= 5; ++i) {
      REQUIRE(policy.replace("raise_above 5\nadd " + std::to_string(i)) == Reload::swapped);
      check_versions(policy);
      CHECK(policy.versions().size() <= std::max<size_t>(1, keep));
      CHECK(first(policy.run({large})) == 11.0f);
      CHECK(policy.version().number == 1);
      check_versions(policy);
      CHECK(policy.versions().size() <= std::max<size_t>(1, keep));
      policy.rollback(1);
    }
  }
}

TEST_CASE("a source is another one though its checksum is that of a source that is trusted") {
  const std::string good = "8yn0iYCKYHlIj4-BwPqk", bad = "GReLUrM4wMqfg9yzV3KQ";  // FNV-1a gives the same for both
  triage::register_front_end(".collision", [&](std::string_view source, const triage::ScriptOptions& options) {
    const std::string text = source == good ? "add 1" : source == bad ? "raise it" : std::string(source);
    return triage::find_front_end("p.fake")(text, options);
  });
  Runtime runtime;
  const Policy policy = runtime.load_source(good, "p.collision");
  const at::Tensor z = at::zeros({2});
  policy.run({z});
  CHECK(policy.replace(bad) == Reload::refused);
  CHECK(first(policy.run({z})) == 1.0f);
  REQUIRE(policy.replace("add 2") == Reload::swapped);
  CHECK(policy.replace(bad) == Reload::refused);
  CHECK(first(policy.run({z})) == 2.0f);
  CHECK(policy.replace(good) == Reload::swapped);
  CHECK(first(policy.run({z})) == 1.0f);
}

TEST_CASE("a source that was live before goes live again as it was loaded, or not at all") {
  Runtime runtime;
  runtime.define("same", [](const std::vector<at::Tensor>& in) { return in; });
  const at::Tensor z = at::zeros({2});
  for (const std::string counting : {"hook\ncount", "hook\ncount\nhost same", "hook\ncount\nraise_above 0.5"}) {
    CAPTURE(counting);
    const Policy policy = runtime.load_source(counting, "p.fake");
    for (const float calls : {1.0f, 2.0f})
      if (counting.find("raise") == std::string::npos) CHECK(first(policy.run({z})) == calls);
    policy.run({z - 10});
    REQUIRE(policy.replace("add 5") == Reload::swapped);
    CHECK(first(policy.run({z})) == 5.0f);
    CHECK(policy.replace(counting) == Reload::swapped);
    CHECK(first(policy.run({z - 10})) == -9.0f);

    REQUIRE(policy.replace("add 6") == Reload::swapped);
    int loads = 0;
    fake::when_loaded = [&] {
      if (++loads > 1) throw triage::LimitError("the budget ran out", {"p.fake", 1});
    };
    const Reload outcome = policy.replace(counting);
    fake::when_loaded = nullptr;
    if (loads > 1) {
      CHECK(outcome == Reload::refused);
      CHECK(first(policy.run({z})) == 6.0f);
    } else {
      CHECK(first(policy.run({z - 10})) == -9.0f);
    }
  }
}

TEST_CASE("a new version is compared with what hosts are used to, not with a version that nobody has called yet") {
  const at::Tensor z = at::zeros({2});
  const std::string bad = "double_above -100\nadd 2", worse = "double_above -100\nadd 3";
  const auto check = [&](const Policy& policy) {
    const std::vector<at::Tensor> answer = policy.run({z});
    CHECK((answer[0].scalar_type() == at::kFloat));
    CHECK(first(answer) == 1.0f);
    CHECK(policy.version().number == 1);
    check_versions(policy);
  };
  Runtime runtime;
  runtime.define("same", [](const std::vector<at::Tensor>& in) { return in; });
  const auto loaded = [&] {  // it cannot be asked what it would give, for it calls a function of the host
    const Policy policy = runtime.load_source("host same\nadd 1", "p.fake");
    policy.run({z});
    return policy;
  };
  {
    const Policy policy = loaded();
    REQUIRE(policy.replace(bad) == Reload::swapped);
    REQUIRE(policy.replace(worse) == Reload::swapped);
    check(policy);
  }
  {  // put away and back again
    const Policy policy = loaded();
    REQUIRE(policy.replace(bad) == Reload::swapped);
    REQUIRE(policy.replace("host same\nadd 4") == Reload::swapped);
    REQUIRE(policy.replace(bad) == Reload::swapped);
    check(policy);
    CHECK(policy.versions().back().taken_back);
  }
  {  // once more after it was taken back
    const Policy policy = loaded();
    REQUIRE(policy.replace(bad) == Reload::swapped);
    check(policy);
    policy.rollback(2);
    check(policy);
    policy.pin(2);
    CHECK((policy.run({z})[0].scalar_type() == at::kFloat));
  }
  {  // taken back while the next one is tried
    const Policy policy = loaded();
    REQUIRE(policy.replace(bad) == Reload::swapped);
    fake::when_loaded = [&] { CHECK(first(policy.run({z})) == 1.0f); };
    const Reload outcome = policy.replace("hook\n" + worse);
    fake::when_loaded = nullptr;
    REQUIRE(outcome == Reload::swapped);
    check(policy);
  }
}

TEST_CASE("a reload from within a reload of the same policy is an error, and one of another policy is none") {
  Runtime runtime;
  const Policy policy = runtime.load_source("add 1", "p.fake"), other = runtime.load_source("add 1", "other.fake");
  fake::when_loaded = [&] { policy.replace("add 3"); };
  CHECK(policy.replace("hook\nadd 2") == Reload::refused);
  CHECK(policy.version().last_error->message.find("from within its own reload") != std::string::npos);
  fake::when_loaded = [&] { other.replace("add 3"); };
  CHECK(policy.replace("hook\nadd 2") == Reload::swapped);
  fake::when_loaded = nullptr;
  CHECK(first(policy.run({at::zeros({2})})) == 2.0f);
  CHECK(first(other.run({at::zeros({2})})) == 3.0f);
}

TEST_CASE("what hosts are used to is known across a version that was live before and is not called again") {
  Runtime runtime({.trial_calls = 3, .trial_seconds = 0});
  runtime.define("same", [](const std::vector<at::Tensor>& in) { return in; });
  const Policy policy = runtime.load_source("host same\nadd 1", "p.fake");
  const auto runs = [&](int calls) {
    for (int i = 0; i < calls; ++i) {
      const bool is_float = policy.run({at::zeros({2})})[0].scalar_type() == at::kFloat;
      CHECK(is_float);
    }
  };
  runs(1);
  CHECK(policy.replace("host same\nadd 2") == Reload::swapped);
  runs(4);
  CHECK(policy.replace("host same\nadd 1") == Reload::swapped);
  CHECK(policy.replace("host same\nadd 3\ndouble_above -100") == Reload::swapped);  // nothing may be tried ahead
  runs(4);
  CHECK(first(policy.run({at::zeros({2})})) == 1.0f);
}

TEST_CASE("a version that is live again is held to what hosts are used to, whichever version stands in for it") {
  Runtime runtime({.trial_calls = 3, .trial_seconds = 0});
  runtime.define("same", [](const std::vector<at::Tensor>& in) { return in; });
  const Policy policy = runtime.load_source("add 1", "p.fake");
  const auto answer = [&](int64_t rows) { return policy.run({at::zeros({rows, 2})})[0]; };
  answer(4);
  CHECK(policy.replace("host same\nadd 2\ndouble_above -100") == Reload::swapped);  // nothing may be tried ahead
  CHECK((answer(4).scalar_type() == at::kFloat));
  CHECK(policy.version().number == 1);
  CHECK(policy.replace("host same\nadd 3") == Reload::swapped);
  for (int i = 0; i < 5; ++i) answer(4);
  CHECK_FALSE(policy.version().on_trial);
  policy.rollback(2);
  CHECK((answer(5).scalar_type() == at::kFloat));  // by version 3, which cannot be asked
  CHECK(policy.version().number == 3);
}

TEST_CASE("reloads, ways back, params and failures from several threads leave a policy in order (threads)") {
  Runtime runtime({.on_error = OnError::last_good,
                   .keep_versions = 3,
                   .trial_calls = 3,
                   .trial_seconds = 0,
                   .failures_to_revert = 2});
  runtime.define("same", [](const std::vector<at::Tensor>& in) { return in; });
  const std::string first_source = "param p 0.0\nadd_param p";
  const Policy policy = runtime.load_source(first_source, "p.fake");
  const at::Tensor small = at::zeros({2}), large = at::full({2}, 10.0);
  policy.run({small});
  const std::vector<std::string> sources = {
      first_source,
      "param p 0.0\nint_param more 1\nadd_param p\nraise_above 5",
      "param p 0.0\nhost same\nadd_param p\nraise_above 5",
      "param p 0.0\nparam more 0.5\nhost same\nadd_param p\ndouble_above -100",
      "param p 0.0\ncount\nraise_above 5",
      "param p 0.0\nbroken on purpose",
  };
  std::atomic<int> wrong{0}, not_one_live{0}, unexpected{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; !stop; ++i) try {
          const at::Tensor answer = policy.run({(i + t) % 3 == 0 ? large : small})[0];
          if (answer.scalar_type() != at::kFloat || answer.sizes() != small.sizes()) ++wrong;
        } catch (const triage::PolicyError&) {  // of a version that went on failing behind its trial
        }
    });
  threads.emplace_back([&] {
    for (int i = 0; !stop; ++i) try {
        policy.set_param(i % 3 ? "p" : "more", i % 2 ? 1 : 0.5);
        const auto all = policy.versions();
        if (std::count_if(all.begin(), all.end(), [](const auto& one) { return one.live; }) != 1) ++not_one_live;
        if (all.size() > 3) ++not_one_live;
        if (i % 5 == 0) policy.rollback(all[static_cast<size_t>(i) % all.size()].number);
        if (i % 7 == 0) policy.pin(all.back().number);
        if (i % 7 == 3) policy.unpin();
      } catch (const triage::InputError&) {  // a param that the live version lacks, a version that was just dropped
      } catch (const std::exception&) {
        ++unexpected;
      }
  });
  for (int i = 0; i < 150; ++i) policy.replace(sources[static_cast<size_t>(i * 7 + i / 5) % sources.size()]);
  stop = true;
  for (auto& thread : threads) thread.join();
  CHECK(wrong.load() == 0);
  CHECK(not_one_live.load() == 0);
  CHECK(unexpected.load() == 0);
  check_versions(policy);
}

TEST_CASE("graphs that run on synthetic values are held to their contracts and end in time") {
  static std::atomic<int> runs{0}, unheld{0}, endless{0};
  struct Spy final : triage::Executable {
    explicit Spy(std::unique_ptr<triage::Executable> inner) : inner_(std::move(inner)) {}
    void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
             const triage::CallContext& call) const override {
      ++runs;
      if (!triage::operators::Untrusted::current()) ++unheld;
      if (!call.deadline) ++endless;
      inner_->run(inputs, outputs, call);
    }
    std::unique_ptr<triage::Executable> inner_;
  };
  triage::register_backend("spy", [](const triage::graph::Graph& graph, const std::vector<at::Tensor>& examples) {
    return std::make_unique<Spy>(triage::find_backend("eager")(graph, examples));
  });
  Runtime runtime({.backend = "spy"});
  const Policy policy = runtime.load_source("add 1", "p.fake");
  const at::Tensor z = at::zeros({2, 2});
  policy.prepare({z}, {.donate = {0}});
  policy.run({z.clone()}, {.donate = {0}});
  REQUIRE(runs > 0);
  CHECK(unheld.load() == 0);
  runs = endless = 0;
  CHECK(policy.replace("add 2") == Reload::swapped);
  CHECK(runs > 0);
  CHECK(unheld.load() == 0);
  CHECK(endless.load() == 0);
}
