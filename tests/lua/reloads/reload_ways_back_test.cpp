// Ways back: what a revert of the file, a rollback and a pin do with versions that are no good; failures in a row; the
// time that a version on trial has; declared outputs.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <chrono>
#include <string>
#include <vector>
#include "tests/logs.h"

namespace {

using triage::Policy;
using triage::Reload;
using triage::Runtime;

triage::RuntimeOptions quiet_and_short(triage::RuntimeOptions options = {}) {
  options.log = triage::test::no_log();
  options.limits.seconds = 0.5;
  return options;
}

std::string policy_source(const std::string& body, const std::string& fields = "") {
  const std::string parameters = fields.find("params") == std::string::npos ? "z" : "z, p";
  return "local calls, last = 0\nreturn policy {outputs = {'y'}," + fields + " run = function(" + parameters + ")\n" +
         body + "\nend}";
}

const at::Tensor z = at::full({4, 3}, 2.0f);

bool last_error_says(const Policy& policy, const std::string& text) {
  const auto error = policy.version().last_error;
  return error && error->message.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("reload: a param that a reload added goes again with a revert, and calls that still name it are answered") {
  Runtime runtime(quiet_and_short());
  const std::string first = policy_source("return z * p.k", " params = {k = 2.0},");
  const Policy policy = runtime.load_source(first, "p.lua");
  policy.run({z});
  CHECK((policy.replace(policy_source("return z * p.k + p.more", " params = {k = 2.0, more = 1.0},")) ==
         Reload::swapped));
  policy.set_param("more", 5.0);
  CHECK(policy.run({z})[0].equal(z * 2 + 5));
  CHECK(policy.run({z}, {.params = {{"more", 7.0}}})[0].equal(z * 2 + 7));
  CHECK((policy.replace(first) == Reload::swapped));
  CHECK(policy.run({z})[0].equal(z * 2));
  CHECK(policy.run({z}, {.params = {{"more", 7.0}}})[0].equal(z * 2));
  CHECK_THROWS_AS(policy.run({z}, {.params = {{"other", 7.0}}}), triage::InputError);
  CHECK((policy.replace(policy_source("return z * p.k + p.more", " params = {k = 2.0, more = 1.0},")) ==
         Reload::swapped));
  CHECK(policy.run({z})[0].equal(z * 2 + 5));  // what the host set before
  CHECK((policy.replace(policy_source("return z * p.k * 3", " params = {k = 2.0},")) ==
         Reload::swapped));  // no revert, and fine too
  CHECK((policy.replace(policy_source("return z * 2")) == Reload::refused));
  CHECK(last_error_says(policy, "'k' is gone"));
}

TEST_CASE("reload: a revert works though the version that is live says more of itself") {
  Runtime runtime(quiet_and_short());
  const std::string first =
      "return policy {signature = {z = Tensor(float32_t, {'N', 3})}, run = function(z) return z * 2 end}";
  const Policy policy = runtime.load_source(first, "p.lua");
  policy.run({z});
  CHECK((policy.replace("return policy {run = function(z) return z * 3 end}") == Reload::swapped));
  CHECK(policy.run({z})[0].equal(z * 3));
  CHECK((policy.replace(first) == Reload::swapped));
  CHECK(policy.run({z})[0].equal(z * 2));
  CHECK_FALSE(policy.version().on_trial);  // it was proven before
}

TEST_CASE("reload: failures in a row behind the trial lead back; single ones do not") {
  Runtime runtime(quiet_and_short({.trial_calls = 5, .trial_seconds = 0, .failures_to_revert = 3}));
  const Policy policy = runtime.load_source(policy_source("return z * 2"), "p.lua");
  policy.run({z});
  REQUIRE((policy.replace(policy_source("if z:max():item() > 100 then error('too large') end return z * 3")) ==
           Reload::swapped));
  for (int i = 0; i < 5; ++i) CHECK(policy.run({z})[0].equal(z * 3));
  CHECK_FALSE(policy.version().on_trial);
  const at::Tensor large = z * 100;
  for (int round = 0; round < 3; ++round) {
    CHECK_THROWS_AS(policy.run({large}), triage::PolicyError);
    CHECK_THROWS_AS(policy.run({large}), triage::PolicyError);
    CHECK(policy.run({z})[0].equal(z * 3));
  }
  CHECK(policy.version().number == 2);
  CHECK(policy.version().failures == 6);
  CHECK_THROWS_AS(policy.run({large}), triage::PolicyError);
  CHECK_THROWS_AS(policy.run({large}), triage::PolicyError);
  CHECK(policy.run({large})[0].equal(large * 2));
  CHECK(policy.version().number == 1);
  CHECK(last_error_says(policy, "too large"));
  CHECK(policy.versions().back().taken_back);
}

TEST_CASE(
    "reload: a version that was taken back is on trial again after a rollback, and a pin keeps it while calls are "
    "answered") {
  Runtime runtime(quiet_and_short());
  const Policy policy = runtime.load_source(policy_source("return z * 2"), "p.lua");
  policy.run({z});
  REQUIRE(
      (policy.replace(policy_source("if z:max():item() > 1.5 then error('no') end return z * 3")) == Reload::swapped));
  CHECK(policy.run({z})[0].equal(z * 2));
  REQUIRE(policy.version().number == 1);
  policy.rollback(2);
  CHECK(policy.version().number == 2);
  CHECK(policy.version().on_trial);
  CHECK(policy.run({z})[0].equal(z * 2));
  CHECK(policy.version().number == 1);
  policy.pin(2);
  for (int i = 0; i < 5; ++i) CHECK(policy.run({z})[0].equal(z * 2));
  CHECK(policy.version().number == 2);
  CHECK(policy.version().pinned);
  policy.unpin();
  policy.rollback(1);
  REQUIRE((policy.replace(policy_source("return z * 4")) == Reload::swapped));
  CHECK(policy.run({z})[0].equal(z * 4));
  policy.rollback(1);  // a host's own decision is no failure
  CHECK(policy.run({z})[0].equal(z * 2));
  CHECK(policy.version().number == 1);
}

TEST_CASE("reload: a version on trial that does not answer in its share of the deadline is taken back") {
  Runtime runtime(quiet_and_short());
  const Policy policy = runtime.load_source(policy_source("local s = z:sum():item() return z * 2"), "p.lua");
  policy.run({z});
  REQUIRE((policy.replace(policy_source("while z:max():item() > 1.5 do end return z * 3")) == Reload::swapped));
  CHECK(
      policy.run({z}, {.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(400)})[0].equal(z * 2));
  CHECK(policy.version().number == 1);
  CHECK(last_error_says(policy, "budget"));
}

TEST_CASE("reload: without a trial the version that is live answers for itself") {
  Runtime runtime(quiet_and_short({.trial_calls = 0, .failures_to_revert = 0}));
  const Policy policy = runtime.load_source(policy_source("return z * 2"), "p.lua");
  policy.run({z});
  REQUIRE(
      (policy.replace(policy_source("if z:max():item() > 1.5 then error('no') end return z * 3")) == Reload::swapped));
  for (int i = 0; i < 5; ++i) CHECK_THROWS_AS(policy.run({z}), triage::PolicyError);
  CHECK(policy.version().number == 2);
}

TEST_CASE("reload: how many rows are kept depends on values, and may change") {
  Runtime runtime(quiet_and_short());
  const Policy policy =
      runtime.load_source(policy_source("return z:index_select(0, (z:sum(-1) > 0):nonzero():flatten())"), "p.lua");
  policy.run({z});
  CHECK((policy.replace(policy_source("return z:index_select(0, (z:sum(-1) > 100):nonzero():flatten())")) ==
         Reload::swapped));
  CHECK(policy.run({z})[0].sizes() == at::IntArrayRef{0, 3});
  CHECK(policy.version().number == 2);
  CHECK((policy.replace(policy_source(
             "return z:index_select(0, (z:sum(-1) > 0):nonzero():flatten()):narrow(1, 0, 2)")) == Reload::refused));
  CHECK(last_error_says(policy, "the shape of output 'y'"));
}

TEST_CASE("reload: what a policy remembers is not touched by trying the next one, nor is what the next one will") {
  Runtime runtime(quiet_and_short());
  const auto counting = [](const std::string& factor) {
    return "local n = 0\nreturn policy {outputs = {'y'}, run = function(z)\nn = n + 1\nreturn z * 0 + n * " + factor +
           "\nend}";
  };
  const Policy policy = runtime.load_source(counting("1"), "p.lua");
  CHECK(policy.run({z})[0][0][0].item<float>() == 1.0f);
  CHECK(policy.run({z})[0][0][0].item<float>() == 2.0f);
  CHECK((policy.replace("return (") == Reload::refused));
  CHECK((policy.replace(policy_source("return z:sum(-1)")) == Reload::refused));
  CHECK(policy.run({z})[0][0][0].item<float>() == 3.0f);
  CHECK((policy.replace(counting("10")) == Reload::swapped));
  CHECK(policy.run({z})[0][0][0].item<float>() == 10.0f);
}

TEST_CASE("reload: what a new version remembers without breaking its graph is not of synthetic inputs either") {
  Runtime runtime(quiet_and_short());
  const std::string remembers = policy_source("local y = last and z + last or z * 1 last = z:sum() * 0 + 1 return y");
  const Policy policy = runtime.load_source(policy_source("return z * 2"), "p.lua");
  policy.run({z});
  for (int round = 0; round < 2; ++round) {
    REQUIRE((policy.replace(remembers) == Reload::swapped));
    CHECK(policy.run({z})[0].equal(z));
    CHECK(policy.run({z * 5})[0].equal(z * 5 + 1));
    REQUIRE((policy.replace(policy_source("return z * 2")) == Reload::swapped));
  }
}

TEST_CASE("reload: inputs whose memory an answer has taken are handed to no other version") {
  for (const auto on_error : {triage::OnError::last_good, triage::OnError::pass_through}) {
    Runtime runtime(quiet_and_short(
        {.on_error = on_error, .backend = "fused", .trial_calls = 1, .trial_seconds = 0, .failures_to_revert = 0}));
    const at::Tensor square = at::ones({4, 4}), other = at::ones({4, 8});
    const Policy typed =
        runtime.load_source("return policy {outputs = {'y'}, run = function(x) return x * 2 + 1 end}", "q.lua");
    typed.run({square});
    REQUIRE((typed.replace("return policy {outputs = {'y'}, signature = {y = Tensor(float32_t, {'N', 'N'})}, "
                           "run = function(x) return x * 2 + 1 end}") == Reload::swapped));
    typed.run({square});
    REQUIRE_FALSE(typed.version().on_trial);
    typed.prepare({square}, {.donate = {0}});
    const at::Tensor given = square.clone();
    CHECK(typed.run({given}, {.donate = {0}})[0].is_alias_of(given));
    CHECK_THROWS_AS(typed.run({other.clone()}, {.donate = {0}}), triage::PolicyError);
  }
}

TEST_CASE("T20: declared outputs are the contract, at load, in calls and over reloads") {
  Runtime runtime(quiet_and_short());
  const auto typed = [](const std::string& body, const std::string& y = "Tensor(float32_t, {'N', 3})") {
    return policy_source(body, " signature = {z = Tensor(float32_t, {'N', 3}), y = " + y + "},");
  };
  try {
    runtime.load_source(typed("return z:sum(-1)"), "p.lua");
    FAIL("a policy that gives other outputs than it declares was loaded");
  } catch (const triage::LoadError& error) {
    CHECK_MESSAGE(std::string(error.what()).find("output 'y' does not fit its declared type") != std::string::npos,
                  error.what());
    CHECK(error.source().line > 0);
  }
  CHECK_THROWS_AS(runtime.load_source(policy_source("return z", " signature = {q = Tensor(float32_t)},"), "p.lua"),
                  triage::LoadError);
  const Policy policy = runtime.load_source(typed("return z * 2"), "p.lua");
  for (const int64_t n : {0, 1, 2, 31, 32, 33}) CHECK(policy.run({at::ones({n, 3})})[0].equal(at::full({n, 3}, 2.0f)));
  CHECK(policy.graphs().size() == 1);
  CHECK((policy.replace(typed("return (z * 2):narrow(0, 0, 1)")) == Reload::refused));
  CHECK(last_error_says(policy, "declared type"));
  CHECK((policy.replace(typed("return z * 2", "Tensor(float32_t, {'N', 'M'})")) == Reload::refused));
  CHECK(last_error_says(policy, "the type of output 'y' from Tensor(float32_t, {\"N\", 3}) to"));
  CHECK((policy.replace(policy_source("return z * 2", " signature = {z = Tensor(float32_t, {'N', 3})},")) ==
         Reload::refused));

  const Policy some = runtime.load_source(typed("if z:size(0) == 7 then return z:sum(-1) end return z * 2"), "p.lua");
  CHECK(some.run({z})[0].equal(z * 2));
  CHECK_THROWS_AS(some.run({at::ones({7, 3})}), triage::PolicyError);

  const Policy open =
      runtime.load_source(typed("return z:narrow(1, 0, 2)", "Tensor(float32_t, {'N', 'any'})"), "p.lua");
  open.run({z});
  CHECK((open.replace(typed("return z * 1", "Tensor(float32_t, {'N', 'any'})")) == Reload::swapped));
  CHECK((open.replace(typed("return z:narrow(1, 0, 1)", "Tensor(float32_t, {'N', 'columns'})")) == Reload::swapped));
  CHECK((open.replace(typed("return z:narrow(1, 0, 1)", "Tensor(float32_t, {'N', 1})")) == Reload::refused));
  CHECK(last_error_says(open, "from Tensor(float32_t, {\"N\", \"columns\"}) to Tensor(float32_t, {\"N\", 1})"));

  const Policy unrun = runtime.load_source(typed("return z * 2", "Tensor(floating_t, {'...'})"), "p.lua");
  for (const char* y : {"Tensor(float32_t, {'...'})", "Tensor(floating_t, {'N', '...'})"}) {
    CHECK((unrun.replace(typed("return z * 2", y)) == Reload::refused));  // nothing was called
    CHECK(last_error_says(unrun, "the type of output 'y' from Tensor(floating_t, {\"...\"}) to Tensor("));
  }
  unrun.run({z});
  CHECK((unrun.replace(typed("return (z * 2):sum():to(torch.float64)", "Tensor(floating_t, {'...'})")) ==
         Reload::swapped));
  CHECK(unrun.run({z})[0].dim() == 0);
}

TEST_CASE("reload: a source that was cut anywhere, or is no policy, leaves the live version") {
  Runtime runtime(quiet_and_short());
  const std::string first = policy_source("return z * 2");
  const Policy policy = runtime.load_source(first, "p.lua");
  const std::string next = "-- a new version\n" + policy_source("return z * 3");
  std::vector<std::string> bad = {"return",
                                  "return 7",
                                  "return {}",
                                  "return policy {}",
                                  "x = 1",
                                  std::string("\0\0", 2),
                                  "return policy {run = 7}",
                                  "return policy {outputs = {'y'}}",
                                  "\x1bLua",
                                  "return nil, 7"};
  const size_t whole = next.find_last_not_of("\n ");
  for (size_t size = 0; size < whole; ++size) bad.push_back(next.substr(0, size));  // as a write in pieces leaves it
  for (const std::string& text : bad) {
    CAPTURE(text);
    CHECK((policy.replace(text) == Reload::refused));
    CHECK(policy.run({z})[0].equal(z * 2));
  }
  CHECK(policy.version().number == 1);
  CHECK((policy.replace(next) == Reload::swapped));
  CHECK(policy.run({z})[0].equal(z * 3));
}
