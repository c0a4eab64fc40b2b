// What becomes of a policy's state over restarts, reloads, candidates, other answers and threads, and in capsules and
// tests.
#include "tests/cli/folder.h"
#include "tests/lua/policies/policy_state.h"
#include "tests/mutation.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <doctest/doctest.h>
#include <torch/script.h>
#include <triage/capsule.h>
#include <triage/statistics.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <thread>

using triage::Policy;
using triage::Runtime;
using triage::RuntimeOptions;
using namespace triage::test;  // NOLINT(google-build-using-namespace)

TEST_CASE("a file with the state goes over a restart; one that is damaged, or of another policy, changes nothing") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "state.pt";
  {
    Runtime runtime(quiet());
    const Policy policy = runtime.load_source(counter, "counter.lua");
    for (int call = 0; call < 3; ++call) next_of(policy, {.state_key = "stream 1"});
    next_of(policy);
    policy.save_state(file);
  }
  const Logged log;
  Runtime runtime(log.options());
  const Policy policy = runtime.load_source(counter, "counter.lua");
  policy.load_state(file);
  CHECK(next_of(policy, {.state_key = "stream 1"}) == 3);
  CHECK(next_of(policy) == 1);
  const auto refused = [&](const Policy& of, const std::filesystem::path& path) {
    return message_of([&] { of.load_state(path); });
  };
  const Policy other = runtime.load_source(counter, "other.lua");
  CHECK(refused(other, file).find("it holds the state of policy 'counter'") != std::string::npos);
  CHECK(other.state().empty());
  CHECK(refused(policy, folder.path() / "none.pt").find("none.pt") != std::string::npos);
  triage::save_tensor((folder.path() / "tensor.pt").string(), at::ones({2}));
  CHECK(refused(policy, folder.path() / "tensor.pt").find("it holds no state") != std::string::npos);
  std::ifstream in(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  for (size_t size = 0; size < bytes.size(); size += 37) {
    write(folder.path() / "cut.pt", bytes.substr(0, size));
    CHECK_THROWS_AS(policy.load_state(folder.path() / "cut.pt"), triage::FileError);
  }
  CHECK(count_of(policy, "stream 1") == 4);
  CHECK_FALSE(log.has("starts anew"));
  const Policy changed = runtime.load_source(
      "return policy { state = {n = {shape = {}}}, run = function(z, s) return z, s.n + 0, {n = s.n + 1} end }",
      "counter.lua");
  changed.load_state(file);
  CHECK(
      log.has("the state 'n' starts anew: it was kept as Long of shape [], and is declared as Tensor(float32_t, {})"));
  CHECK(changed.run({at::ones({2, 3})})[1].item<double>() == 0);
}

TEST_CASE("a file with the state and one bit changed is refused, or gives the same state") {
  const TemporaryFolder folder;
  const std::string file = folder / "state.pt";
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(counter, "counter.lua");
  for (int call = 0; call < 3; ++call) next_of(policy, {.state_key = "stream 1"});
  policy.save_state(file);
  const std::string changed = write_bytes(folder / "changed.pt", read_bytes(file));
  for_each_changed_bit(changed, [&](size_t bit) {
    CAPTURE(bit);
    policy.load_state(file);
    try {
      policy.load_state(changed);
    } catch (const triage::FileError&) {
    }
    CHECK(policy.state().size() == 1);
    CHECK(count_of(policy, "stream 1") == 3);
  });
}

TEST_CASE("metrics tell how many keys have state, and its memory") {
  RuntimeOptions options = quiet();
  options.state_keys = 2;
  Runtime runtime(options);
  const Policy policy = runtime.load_source(counter, "counter.lua");
  const auto metric = [&](const std::string& name) {
    const std::string text = triage::metrics_text(runtime),
                      line = "triage_" + name + "{policy=\"counter\",path=\"counter.lua\"} ";
    const size_t at = text.find(line);
    return at == std::string::npos ? -1 : std::stoi(text.substr(at + line.size()));
  };
  CHECK(metric("state_keys") == -1);
  for (const char* const key : {"a", "b", "b"}) next_of(policy, {.state_key = key});
  CHECK(metric("state_keys") == 2);
  CHECK(metric("state_bytes") == 16);
  CHECK(metric("state_dropped_keys_total") == 0);
  next_of(policy, {.state_key = "c"});
  CHECK(metric("state_keys") == 2);
  CHECK(metric("state_dropped_keys_total") == 1);
}

TEST_CASE("state is kept over a reload where it is declared as before; else it starts anew, and an event says so") {
  const TemporaryFolder folder;
  const auto declares = [](const std::string& state, const std::string& step) {
    return "return policy { outputs = {\"z\", \"n\"}, inputs = {\"z\"}, state = {" + state +
           "}, run = function(z, s) return z + 1, s.n:sum():to(torch.int64), {n = s.n + " + step + "} end }";
  };
  write(folder.path() / "counter.lua", declares("n = {shape = {}, dtype = torch.int64}", "1"));
  const Logged log;
  Runtime runtime(log.options());
  const Policy policy = runtime.load(folder.path() / "counter.lua");
  for (int call = 0; call < 3; ++call) CHECK(next_of(policy) == call);
  write(folder.path() / "counter.lua", declares("n = {shape = {}, dtype = torch.int64, init = 50}", "100"));
  CHECK(policy.reload() == triage::Reload::swapped);
  CHECK(count_of(policy) == 3);  // the trial changed nothing
  CHECK(next_of(policy) == 3);
  CHECK(next_of(policy) == 103);
  CHECK_FALSE(log.has("starts anew"));
  std::vector<triage::WatchEvent> events;
  triage::WatchOptions watching;
  watching.on_event = [&](const triage::WatchEvent& event) { events.push_back(event); };
  triage::Watch watch = runtime.watch(folder.path(), watching);
  write(folder.path() / "counter.lua", declares("n = {shape = {2}, dtype = torch.int64}", "1"));
  watch.rescan();
  watch.stop();
  CHECK(
      log.has("version 3: the state 'n' starts anew: it was kept as Long of shape [], and is declared as "
              "Tensor(int64_t, {2})"));
  CHECK(std::count_if(events.begin(), events.end(), [](const triage::WatchEvent& event) {
          return event.kind == triage::WatchEvent::Kind::reloaded &&
                 event.message.find("the state 'n' starts anew") != std::string::npos;
        }) == 1);
  CHECK(policy.state()[0].tensors.empty());
  CHECK(next_of(policy) == 0);
  CHECK(next_of(policy) == 2);
}

TEST_CASE("a version on trial that fails leaves the state to the one that answers") {
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(counter);
  for (int call = 0; call < 3; ++call) next_of(policy);
  REQUIRE(policy.replace(R"(
    return policy {
      outputs = {"z", "n"}, inputs = {"z"},
      state = {n = {shape = {}, dtype = torch.int64}},
      run = function(z, s)
        if z:sum():item() > 100 then error("too much") end
        return z + 1, s.n + 0, {n = s.n + 1000}
      end,
    })") == triage::Reload::swapped);
  CHECK(next_of(policy) == 3);
  CHECK(next_of(policy) == 1003);
  CHECK(policy.run({at::full({2, 3}, 100.0)})[1].item<int64_t>() == 2003);
  CHECK(policy.version().number == 1);
  CHECK(next_of(policy) == 2004);
}

TEST_CASE("a version on trial that declares state differently, and is taken back, loses none of the version before") {
  const auto declares = [](const std::string& state, const std::string& counted, const std::string& step) {
    return "return policy { outputs = {\"z\", \"n\"}, inputs = {\"z\"}, state = {" + state +
           "}, run = function(z, s) " + (counted == "k" ? "if z:sum():item() > 100 then error('too much') end " : "") +
           "return z + 1, s." + counted + ":sum():to(torch.int64), {" + step + "} end }";
  };
  const std::string integer = declares("n = {shape = {}, dtype = torch.int64}", "n", "n = s.n + 1");
  for (const std::string& next :
       {declares("n = {shape = {}, dtype = torch.float64}, k = {shape = {}}", "k", "n = s.n + 1, k = s.k + 1"),
        declares("n = {shape = {2}, dtype = torch.int64}, k = {shape = {}}", "k", "n = s.n + 1, k = s.k + 1"),
        declares("k = {shape = {}}", "k", "k = s.k + 1")}) {
    CAPTURE(next);
    const Logged log;
    triage::RuntimeOptions options = log.options();
    options.trial_calls = 4;
    options.trial_seconds = 0;
    Runtime runtime(options);
    const Policy policy = runtime.load_source(integer);
    for (int call = 0; call < 50; ++call) CHECK(next_of(policy) == call);
    REQUIRE(policy.replace(next) == triage::Reload::swapped);
    for (int call = 0; call < 2; ++call) next_of(policy);
    CHECK(policy.run({at::full({2, 3}, 100.0)})[1].item<int64_t>() == 50);
    CHECK(policy.version().number == 1);
    CHECK(next_of(policy) == 51);
    CHECK(policy.state()[0].tensors.size() == 1);

    REQUIRE(policy.replace(next + " ") == triage::Reload::swapped);  // which passes its trial
    for (int call = 0; call < 6; ++call) next_of(policy);
    REQUIRE_FALSE(policy.version().on_trial);
    REQUIRE(policy.replace(integer + " ") == triage::Reload::swapped);
    CHECK(next_of(policy) == 0);
  }
}

TEST_CASE(
    "state that the live version no longer declares is gone from keys without calls, too, once its trial is over") {
  const std::string both =
      "return policy { state = {c = {shape = {}}, d = {shape = {}}}, run = function(z, s) return z * 0 + s.c, "
      "{c = s.c + 1, d = s.d + 1} end }";
  const std::string one =
      "return policy { state = {d = {shape = {}}}, run = function(z, s) return z * 0 + s.d, {d = s.d + 1} end }";
  for (const size_t trial_calls : {size_t{0}, size_t{3}})
    for (const bool rolls_back : {false, true}) {
      CAPTURE(trial_calls);
      CAPTURE(rolls_back);
      RuntimeOptions options = quiet();
      options.trial_calls = trial_calls;
      options.trial_seconds = 0;
      Runtime runtime(options);
      const Policy policy = runtime.load_source(both, "counter.lua");
      const auto answer = [&](const char* key) {
        return policy.run({at::ones({2, 3})}, {.state_key = key})[0][0][0].item<double>();
      };
      for (int call = 0; call < 3; ++call)
        for (const char* key : {"busy", "idle"}) CHECK(answer(key) == call);
      REQUIRE(policy.replace(one) == triage::Reload::swapped);
      for (int call = 0; call < 5; ++call) CHECK(answer("busy") == 3 + call);
      REQUIRE_FALSE(policy.version().on_trial);
      if (rolls_back)
        policy.rollback(1);
      else
        REQUIRE(policy.replace(both + " ") == triage::Reload::swapped);
      for (const char* key : {"busy", "idle"}) CHECK(answer(key) == 0);
    }
}

TEST_CASE("a version without state answers for one with state that failed, also where the call is recorded") {
  const TemporaryFolder folder;
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(R"(
    return policy { inputs = {"z"}, outputs = {"z"}, run = function(z) return z + 1 end })");
  policy.run({at::ones({2, 3})});
  REQUIRE(policy.replace(R"(
    return policy {
      inputs = {"z"}, outputs = {"z"}, state = {n = {shape = {}}},
      run = function(z, s)
        if z:sum():item() > 100 then error("too much") end
        return z + 1, {n = s.n + 1}
      end,
    })") == triage::Reload::swapped);
  const std::string file = (folder.path() / "call.pt").string();
  triage::record(policy, {at::full({2, 3}, 100.0)}, {file});
  CHECK(policy.version().number == 1);
  const triage::Replayed replayed = triage::replay(file);
  CHECK_MESSAGE(replayed.same, replayed.difference);
}

TEST_CASE("state that another version declares stays as it is when an older one answers a call") {
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(counter);
  for (int call = 0; call < 3; ++call) next_of(policy);
  const std::string source = counter;
  std::string next = source;
  next.replace(next.find("n = {shape"), 0, "m = {shape = {}, dtype = torch.int64, init = 7}, ");
  next.replace(next.find("{n = s.n + 1}"), 13, "{n = s.n + 1, m = s.m + 1}");
  next.replace(next.find("return z + 1"), 0, "if z:sum():item() > 100 then error('too much') end ");
  REQUIRE(policy.replace(next) == triage::Reload::swapped);
  next_of(policy);
  CHECK(count_of(policy, "", "m") == 8);
  policy.run({at::full({2, 3}, 100.0)});  // the version before answers, and is live again
  CHECK(count_of(policy) == 5);
  CHECK(next_of(policy) == 5);
}

TEST_CASE("a candidate runs on copies: the state is that of the calls which the live version answered") {
  const std::string faster = [] {
    std::string source = counter;
    source.replace(source.find("s.n + 1}"), 8, "s.n + 5}");
    return source;
  }();
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(counter);
  for (int call = 0; call < 3; ++call) next_of(policy);
  policy.shadow_source(faster, {.share = 1});
  for (int call = 3; call < 9; ++call) CHECK(next_of(policy) == call);
  CHECK(eventually([&] { return policy.candidate()->shadow.compared >= 6; }));
  const triage::CandidateReport report = policy.end_candidate();
  CHECK(report.shadow.different == 0);  // on the same state it gives the same
  CHECK(count_of(policy) == 9);
  policy.canary_source(faster, {.share = 1});
  for (int call = 0; call < 3; ++call) CHECK(next_of(policy) == 9 + 5 * call);  // a state of its own
  CHECK(count_of(policy) == 9);
  policy.promote();
  CHECK(next_of(policy) == 24);  // it answered the last call of this key
  CHECK(next_of(policy) == 29);
}

TEST_CASE("a canary has state of its own, key by key, until it is live or gone") {
  const auto source = [](const std::string& step, const std::string& more) {
    return "return policy { inputs = {'z'}, outputs = {'z'}, state = { n = { shape = {} }" + more +
           " },\n  run = function(z, s)\n    local after = {}\n    for name, tensor in pairs(s) do after[name] = "
           "tensor + " +
           step + " end\n    if z:sum():item() > 100 then error('too much') end\n    return z + s.n" +
           (more.empty() ? "" : " + 100 * s.m") + ", after\n  end }";
  };
  const auto ask = [](const Policy& policy, const std::string& key, float z = 0) {
    triage::RunOptions options;
    options.state_key = key;
    return policy.run<1>({at::full({1}, z)}, options)[0].item<float>();
  };
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(source("1", ""));
  CHECK(ask(policy, "a") == 0);
  CHECK(ask(policy, "b") == 0);
  triage::CanaryOptions all;
  all.share = 1;
  all.promote_after = 0;
  all.revert_if.failures = 0;
  SUBCASE("what only the candidate declares is tried, and stays when it goes live") {
    policy.canary_source(source("10", ", m = { shape = {} }"), all);
    CHECK(ask(policy, "a") == 1);
    CHECK(ask(policy, "a") == 11 + 1000);
    CHECK(ask(policy, "new") == 0);
    policy.promote();
    CHECK(ask(policy, "a") == 21 + 2000);
    CHECK(ask(policy, "b") == 1);  // the live version was the last to answer it
    CHECK(ask(policy, "new") == 10 + 1000);
  }
  SUBCASE("where it ends, nothing of it is left") {
    policy.canary_source(source("10", ""), all);
    CHECK(ask(policy, "a") == 1);
    CHECK(ask(policy, "a") == 11);
    policy.end_candidate();
    CHECK(ask(policy, "a") == 1);
  }
  SUBCASE("what the host sets or resets, it begins with") {
    policy.canary_source(source("10", ""), all);
    CHECK(ask(policy, "a") == 1);
    CHECK(ask(policy, "b") == 1);
    policy.reset_state("a");
    CHECK(ask(policy, "a") == 0);
    CHECK(ask(policy, "b") == 11);
    policy.set_state({{"b", {{"n", at::full({}, 70.0f)}}}});
    CHECK(ask(policy, "b") == 70);
    CHECK(ask(policy, "a") == 0);
  }
  SUBCASE("a call that it fails keeps nothing of it, and the live version's state goes on") {
    policy.canary_source(
        "return policy { inputs = {'z'}, outputs = {'z'}, state = { n = { shape = {} } },\n"
        "  run = function(z, s) if z:sum():item() > 10 then error('canary') end\n"
        "  return z + s.n, {n = s.n + 10} end }",
        all);
    CHECK(ask(policy, "a") == 1);
    CHECK(ask(policy, "a", 20) == 21);  // by the live version
    CHECK(ask(policy, "a") == 11);
    CHECK(policy.state().at(1).tensors.at(0).second.item<float>() == 2);
  }
}

/// Calls that the live version answers, and calls that the canary answers, each by its id.
class BothSides {
 public:
  explicit BothSides(const Policy& policy) : policy_(policy) {}

  float live() { return ask(triage::Answered::live); }
  float canary() { return ask(triage::Answered::canary); }

 private:
  float ask(triage::Answered wanted) {
    std::string& id = ids_[wanted];
    for (int i = 0; id.empty(); ++i) {
      const std::string tried = "id " + std::to_string(i);
      triage::RunInfo info;
      run(tried, "to find ids", &info);
      if (info.answered == wanted) id = tried;
    }
    return run(id, "a", nullptr);
  }
  float run(const std::string& id, const std::string& key, triage::RunInfo* info) const {
    triage::RunOptions options;
    options.decision_id = id;
    options.state_key = key;
    options.info = info;
    return policy_.run<1>({at::zeros({1})}, options)[0].item<float>();
  }
  const Policy& policy_;
  std::map<triage::Answered, std::string> ids_;
};

TEST_CASE("a promotion takes of a canary what it declares, and leaves what only the version before knows") {
  RuntimeOptions options = quiet();
  options.trial_calls = 1000;
  Runtime runtime(options);
  triage::CanaryOptions half;
  half.share = 0.5;
  half.promote_after = 0;
  const auto policy_with = [](const std::string& state, const std::string& returned, const std::string& after) {
    return "return policy { inputs = {'z'}, outputs = {'z'}, state = " + state +
           ",\n  run = function(z, s) return z + " + returned + ", " + after + " end }";
  };
  SUBCASE("a name of the version before alone is as that left it") {
    const Policy policy = runtime.load_source(
        policy_with("{ n = { shape = {} }, old = { shape = {} } }", "s.old", "{ n = s.n + 1, old = s.old + 1 }"));
    BothSides calls(policy);
    policy.canary_source(policy_with("{ n = { shape = {} } }", "s.n", "{ n = s.n + 10 }"), half);
    CHECK(calls.live() == 0);
    CHECK(calls.canary() == 1);
    CHECK(calls.live() == 1);
    CHECK(calls.live() == 2);
    CHECK(calls.canary() == 11);
    policy.promote();
    policy.rollback(1);
    CHECK(calls.live() == 3);
  }
  SUBCASE("a name in another dtype is its own") {
    const Policy policy = runtime.load_source(policy_with("{ n = { shape = {} } }", "s.n", "{ n = s.n + 1 }"));
    BothSides calls(policy);
    policy.canary_source(
        policy_with("{ n = { shape = {}, dtype = torch.float64 } }", "s.n:to(z.dtype)", "{ n = s.n + 10 }"), half);
    CHECK(calls.canary() == 0);
    CHECK(calls.canary() == 10);
    CHECK(calls.live() == 0);
    policy.promote();
    CHECK(calls.live() == 20);
  }
}

TEST_CASE("a promotion keeps the keys that were used last") {
  RuntimeOptions options = quiet();
  options.state_keys = 3;
  Runtime runtime(options);
  const Policy policy = runtime.load_source(counter);
  const auto ask = [&](const std::string& key) {
    triage::RunOptions with;
    with.state_key = key;
    return next_of(policy, with);
  };
  for (const char* key : {"live 1", "live 2"}) ask(key);
  triage::CanaryOptions all;
  all.share = 1;
  all.promote_after = 0;
  policy.canary_source(std::string(counter) + "\n-- next", all);
  for (const char* key : {"canary 1", "canary 2", "canary 3"}) ask(key);
  policy.promote();
  CHECK(policy.state().size() == 3);
  for (const char* key : {"canary 1", "canary 2", "canary 3"}) CHECK(ask(key) == 1);
  CHECK(ask("live 2") == 0);
}

TEST_CASE("pass_through and last_good answer without a change of the state") {
  const char* const fails = R"(
    return policy {
      inputs = {"z"}, outputs = {"z", "f"},
      state = {n = {shape = {}, dtype = torch.int64}},
      run = function(z, s)
        if z:sum():item() > 100 then error("too much") end
        return z + s.n, flag_nan(z, "z"), {n = s.n + 1}
      end,
    })";
  RuntimeOptions options = quiet();
  options.trial_calls = 0;
  options.failures_to_revert = 0;
  Runtime runtime(options);
  const Policy policy = runtime.load_source(fails);
  policy.run({at::ones({2, 3})});
  const at::Tensor bad = at::full({2, 3}, 100.0);
  CHECK(policy.run({bad}, {.on_error = triage::OnError::pass_through})[0].equal(bad));
  CHECK(count_of(policy) == 1);
  std::string next = fails;
  next.replace(next.find("z + s.n"), 7, "z - s.n");
  REQUIRE(policy.replace(next) == triage::Reload::swapped);
  policy.run({at::ones({2, 3})});
  CHECK(count_of(policy) == 2);
  CHECK_THROWS(policy.run({bad}, {.on_error = triage::OnError::last_good}));
  CHECK(count_of(policy) == 2);
}

TEST_CASE("calls with one key on several threads follow one another; other keys are apart") {
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(counter);
  next_of(policy);
  constexpr int threads = 4, calls = 200;
  std::vector<std::thread> running;
  std::atomic<int64_t> sum{0};
  for (int i = 0; i < threads; ++i)
    running.emplace_back([&, i] {
      const std::string key = "own " + std::to_string(i);
      for (int call = 0; call < calls; ++call) {
        sum += next_of(policy);
        if (next_of(policy, {.state_key = key}) != call) sum += 1'000'000;
        if (call % 50 == 0) policy.state();
      }
    });
  for (std::thread& thread : running) thread.join();
  constexpr int64_t all = threads * calls;
  CHECK(sum == all * (all + 1) / 2);  // 1, 2, ..., each once
  CHECK(count_of(policy) == all + 1);
}

TEST_CASE(
    "state is read, set, saved, loaded and reset while threads call and versions change: no call fails (threads)") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "state.pt";
  RuntimeOptions options = quiet();
  options.state_keys = 8;
  Runtime runtime(options);
  const Policy policy = runtime.load_source(counter, "counter.lua");
  std::atomic<bool> stop{false};
  std::atomic<int> failed{0}, calls{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; !stop; ++i, ++calls) {
        const std::string key = std::to_string((i + t) % 12);
        try {
          if (next_of(policy, {.state_key = key}) < 0) ++failed;
        } catch (const std::exception&) {
          ++failed;
        }
      }
    });
  for (int i = 0; i < 40; ++i) {
    policy.set_state(policy.state());
    policy.save_state(file);
    policy.reset_state(std::to_string(i % 12));
    CHECK(policy.replace(std::string(counter) + std::string(static_cast<size_t>(1 + i % 5), '\n')) ==
          triage::Reload::swapped);
    policy.load_state(file);
    for (const int seen = calls; calls < seen + 5;) std::this_thread::yield();
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  CHECK(failed == 0);
  CHECK(policy.state().size() <= 8);
}

TEST_CASE("a call that waits for one on another thread longer than its deadline fails; one within itself is told") {
  Runtime runtime(quiet());
  Policy policy;
  std::atomic<bool> inside{false}, go_on{false};
  std::string inner;
  bool again = false;
  runtime.define("host", [&](const std::vector<at::Tensor>& given) {
    if (again) inner = message_of([&] { policy.run({at::ones({2})}); });
    inside = true;
    while (!again && !go_on) std::this_thread::yield();
    return given;
  });
  policy = runtime.load_source(
      "return policy { inputs = {'z'}, outputs = {'z'}, state = {n = {shape = {}}},\n"
      "  run = function(z, s) return host(z), {n = s.n + 1} end }");
  std::thread other([&] { policy.run({at::ones({2})}); });
  while (!inside) std::this_thread::yield();
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  CHECK_THROWS_AS(policy.run({at::ones({2})}, {.deadline = soon}), triage::LimitError);
  const at::Tensor z = at::rand({2});
  CHECK(policy.run({z}, {.deadline = soon, .on_error = triage::OnError::pass_through})[0].equal(z));
  go_on = true;
  other.join();
  again = true;
  policy.run({at::ones({2})});
  CHECK(inner.find("while it was running with it on the same thread") != std::string::npos);
}

TEST_CASE("a capsule holds the state before the call, and replays it bit for bit") {
  const TemporaryFolder folder;
  for (const char* backend : {"eager", "fused"}) {
    RuntimeOptions options = quiet();
    options.backend = backend;
    Runtime runtime(options);
    const Policy policy = runtime.load_source(keeper, "keeper.lua");
    for (int call = 0; call < 3; ++call) policy.run({at::rand({4, 3})});
    const std::string file = (folder.path() / "call.pt").string();
    triage::record(policy, {at::rand({4, 3})}, {file});
    policy.run({at::rand({4, 3})});
    const triage::Replayed replayed = triage::replay(file);
    CHECK_MESSAGE(replayed.same, replayed.difference);
    CHECK(replayed.recorded == "4 outputs");  // three are state
    triage::record(policy, {at::rand({4, 3})}, {.file = file, .masked = {"z"}});
    const triage::Replayed masked = triage::replay(file);
    CHECK_MESSAGE(masked.same, masked.difference);
    const auto left_out = [](const triage::Replayed& replayed, const std::string& name) {
      return std::any_of(replayed.notes.begin(), replayed.notes.end(), [&](const std::string& note) {
        return note.find("the values of the state '" + name + "' were left out") != std::string::npos;
      });
    };
    CHECK(left_out(masked, "last"));
    triage::record(policy, {at::rand({4, 3})}, {.file = file, .masked = {"last"}});
    const triage::Replayed derived = triage::replay(file);
    CHECK_MESSAGE(derived.same, derived.difference);
    for (const char* const name : {"count", "last", "sums"}) CHECK(left_out(derived, name));
  }
}

TEST_CASE("the tests of a policy begin with a state, and check the new one") {
  Runtime runtime(quiet());
  const auto failures = [&](const std::string& test) {
    const Policy policy = runtime.load_source(
        "return policy { outputs = {\"z\"}, state = {n = {shape = {}, init = 5}, last = {shape = {\"N\"}},\n"
        "small = {shape = {}, dtype = torch.uint8}},\n"
        "run = function(z, s) return z + s.n, {n = s.n + 1, last = s.last + z, small = s.small} end,\n"
        "tests = { { name = 't', " +
            test + ", args = function() return torch.ones({3}) end } } }",
        "tested.lua");
    return policy.run_tests().at(0).second;
  };
  CHECK(failures("check = function(z, s) return s.n:item() == 6 and s.last:sum():item() == 3 end").empty());
  CHECK(failures("state = {n = 8, last = torch.tensor({1.0, 2.0, 3.0})}, "
                 "check = function(z, s) return z:sum():item() == 27 and s.last:sum():item() == 9 end")
            .empty());
  CHECK(failures("check = function(z, s) return false end").find("s.n = tensor(6.)") != std::string::npos);
  const auto refused = [&](const std::string& state) {
    return message_of([&] { failures("state = " + state + ", check = function() end"); });
  };
  CHECK(refused("{m = 3}").find("the policy has no state 'm'") != std::string::npos);
  CHECK(refused("{small = -1}").find("'small': torch.uint8 cannot hold this number") != std::string::npos);
  CHECK(refused("{small = 300}").find("'small': torch.uint8 cannot hold this number") != std::string::npos);
  CHECK(refused("{n = torch.ones({2})}").find("expected Tensor(float32_t, {}), or a number") != std::string::npos);
  CHECK(refused("3").find("field 'state': expected a table") != std::string::npos);
}

/// The program of a policy from text.
triage::ExportedProgram exported(const std::string& source, const std::vector<at::Tensor>& inputs,
                                 const triage::ExportOptions& options = {}) {
  triage::ScriptOptions script_options;
  script_options.path = "exported.lua";
  const auto script = triage::find_front_end("exported.lua")(source, script_options);
  return triage::export_script(*script, inputs, {}, options);
}

TEST_CASE("the state of a policy is an input and an output of its program") {
  const std::string source = R"(
    return policy {
      inputs = {"z"}, outputs = {"z"},
      state = {
        total = {shape = {"N", 2}, init = 1},
        calls = {shape = {}, dtype = torch.int64},
      },
      run = function(z, s)
        local total = s.total + z
        return total * 2, {total = total, calls = s.calls + 1}
      end,
    })";
  triage::ExportOptions options;
  options.dynamic_dims = {{0, 0, "s0"}};
  const triage::ExportedProgram program = exported(source, {at::ones({3, 2})}, options);
  const std::string text = program.text();
  CAPTURE(text);
  CHECK(text.find("# calls is state: 0 before the first call; the output calls is what the next call takes") !=
        std::string::npos);
  CHECK(text.find("# total is state: 1 before the first call; the output total") != std::string::npos);
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(source, "exported.lua");
  for (const int64_t batch : {2, 33}) {
    CAPTURE(batch);
    policy.reset_state();
    at::Tensor calls = at::zeros({}, at::kLong), total = at::ones({batch, 2});
    for (int i = 1; i <= 3; ++i) {
      const at::Tensor z = at::rand({batch, 2});
      // In the order in which the policy declares them, which is that of their names.
      const std::vector<at::Tensor> results = program.run({z, calls, total});
      REQUIRE(results.size() == 3);
      CHECK(results[0].equal(policy.run<1>({z})[0]));
      calls = results[1], total = results[2];
      CHECK(calls.item<int64_t>() == i);
    }
    const triage::PolicyState kept = policy.state();
    for (const auto& [name, tensor] : kept.at(0).tensors) CHECK(tensor.equal(name == "total" ? total : calls));
  }
}

TEST_CASE("state beside params, outputs without names and outputs of its name, also from a file and as TorchScript") {
  const std::string body = "run = function(z, p, s) return z * p.k + s.n, {n = s.n + 1} end }";
  const std::string state = "return policy { inputs = {'z'}, params = {k = 3.0}, state = { n = { shape = {} } }, ";
  for (const bool named : {false, true}) {
    CAPTURE(named);
    triage::ScriptOptions script_options;
    script_options.path = "exported.lua";
    const auto script =
        triage::find_front_end("exported.lua")(state + (named ? "outputs = {'n'}, " : "") + body, script_options);
    const triage::ExportedProgram program =
        triage::export_script(*script, {at::ones({2})}, {at::native::wrapped_scalar_tensor(3.0)});
    CHECK(program.text().find(named ? "next_n" : "out0") != std::string::npos);
    const auto folder = std::filesystem::temp_directory_path() / ("triage-state-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    program.save((folder / "n.program").string());
    program.save_torchscript((folder / "n.pt").string());
    const auto loaded = triage::ExportedProgram::load((folder / "n.program").string());
    torch::jit::Module module = torch::jit::load((folder / "n.pt").string());
    at::Tensor n = at::zeros({});
    for (int i = 0; i < 3; ++i) {
      const std::vector<at::Tensor> results = loaded.run({at::ones({2}), n});
      REQUIRE(results.size() == 2);
      CHECK(results[0].equal(at::full({2}, 3.0f + i)));
      const auto from_module = module.forward({at::ones({2}), n}).toTupleRef().elements();
      CHECK(from_module[0].toTensor().equal(results[0]));
      CHECK(from_module[1].toTensor().equal(results[1]));
      n = results[1];
    }
    std::filesystem::remove_all(folder);
  }
}
