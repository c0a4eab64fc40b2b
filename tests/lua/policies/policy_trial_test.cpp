// Reloads of policies that cannot run on synthetic inputs: captured on kinder ones where there are any, else at the
// first call, which the version before answers when the new one fails.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include "tests/logs.h"

namespace {

using triage::Policy;
using triage::Reload;
using triage::Runtime;

const char* const first_version = "return policy {outputs = {'y'}, run = function(z) return z * 2 end}";

struct Hosted {
  explicit Hosted(triage::RuntimeOptions options = {}) : runtime(with_log(std::move(options))) {
    policy = runtime.load_source(first_version, "trial.lua");
    policy.run({matrices(2)});
  }
  triage::RuntimeOptions with_log(triage::RuntimeOptions options) {
    options.log = triage::test::log_to(log);
    options.reload_latency_ratio = 0;  // factorizations wait for their threads where other tests have the cores
    return options;
  }
  static at::Tensor matrices(int64_t n, double diagonal = 3) {
    return at::eye(3).mul(diagonal).expand({n, 3, 3}).contiguous();
  }
  bool logged(const std::string& text) const { return log.str().find(text) != std::string::npos; }

  std::ostringstream log;
  Runtime runtime;
  Policy policy;
};

std::string with_body(const std::string& body) {
  return "return policy {outputs = {'y'}, run = function(z) " + body + " end}";
}

}  // namespace

TEST_CASE("a policy that takes only positive definite matrices is captured ahead on those") {
  Hosted host;
  CHECK(host.policy.replace(with_body("return torch.linalg_cholesky(z)")) == Reload::swapped);
  CHECK(host.policy.version().number == 2);
  CHECK(host.policy.graphs().size() == 1);
  CHECK_FALSE(host.logged("not captured in advance"));
  const at::Tensor z = Hosted::matrices(4);
  CHECK(host.policy.run({z})[0].equal(at::linalg_cholesky(z)));
}

TEST_CASE("a policy that takes no synthetic values is captured at its first call") {
  Hosted host({.trial_calls = 6, .trial_seconds = 0});
  const std::string needs_more = "return torch.linalg_cholesky(z - 2 * torch.eye(3))";
  CHECK(host.policy.replace(with_body(needs_more)) == Reload::swapped);
  CHECK(host.logged("not captured in advance"));
  CHECK(host.policy.graphs().empty());
  for (const int64_t n : {0, 1, 2, 31, 32, 33}) {
    const at::Tensor z = Hosted::matrices(n);
    CHECK(host.policy.run({z})[0].equal(at::linalg_cholesky(z - 2 * at::eye(3))));
  }
  CHECK(host.policy.version().number == 2);
  CHECK_FALSE(host.policy.version().last_error);
  CHECK_FALSE(host.policy.version().on_trial);
  // It has answered as often as was asked: bad inputs are its own affair now.
  CHECK_THROWS_AS(host.policy.run({Hosted::matrices(2, 1)}), triage::PolicyError);
  CHECK(host.policy.version().number == 2);
}

TEST_CASE("asking the version before for its form takes no random numbers from the calls") {
  const auto numbers_after = [](const char* body) {
    triage::RuntimeOptions options;
    options.seed = 7;
    const Policy policy = Runtime(options).load_source(with_body(body), "random.lua");
    CHECK(policy.replace(with_body("return z + torch.rand_like(z)")) == Reload::swapped);
    policy.run({at::zeros({5})});
    return policy.run({at::zeros({5})})[0];
  };
  CHECK(numbers_after("return z - torch.rand_like(z)").equal(numbers_after("return z - 1")));
}

TEST_CASE("where the first call fails, the version before answers it and is live again") {
  for (const auto on_error : {triage::OnError::raise, triage::OnError::pass_through, triage::OnError::last_good}) {
    triage::RuntimeOptions options;
    options.on_error = on_error;
    Hosted host(options);
    CHECK(host.policy.replace(with_body("return torch.linalg_cholesky(z - 9 * torch.eye(3))")) == Reload::swapped);
    CHECK(host.policy.version().number == 2);
    const at::Tensor z = Hosted::matrices(2);
    CHECK(host.policy.run({z})[0].equal(z * 2));
    CHECK(host.policy.version().number == 1);
    REQUIRE(host.policy.version().last_error);
    CHECK(host.policy.version().last_error->message.find("cholesky") != std::string::npos);
    CHECK(host.logged("version 1 is live again"));
    CHECK(host.policy.run({z})[0].equal(z * 2));
    CHECK(host.policy.replace(with_body("return z * 3")) == Reload::swapped);
    CHECK(host.policy.run({z})[0].equal(z * 3));
    CHECK_FALSE(host.policy.version().last_error);
  }
}

TEST_CASE("inputs that both versions fail on are the inputs' fault: the new version stays") {
  Hosted host(
      {.trial_calls = 1, .trial_seconds = 0});  // the second version has passed its trial, and stands in for the third
  CAPTURE(host.log.str());
  CHECK(host.policy.replace(with_body("return torch.linalg_cholesky(z)")) == Reload::swapped);
  host.policy.run({Hosted::matrices(2)});
  CHECK(host.policy.replace(with_body("return torch.linalg_cholesky(z - torch.eye(3)) * 2")) == Reload::swapped);
  CHECK(host.policy.version().number == 3);
  CHECK_THROWS_AS(host.policy.run({Hosted::matrices(2, -1)}), triage::PolicyError);
  CHECK(host.policy.version().number == 3);
  const at::Tensor good = Hosted::matrices(2);
  CHECK(host.policy.run({good})[0].equal(at::linalg_cholesky(good - at::eye(3)) * 2));
}

TEST_CASE("what the first call gives must keep the contract") {
  Hosted host;
  CHECK(host.policy.replace(with_body("return torch.linalg_cholesky(z - 2 * torch.eye(3)):to(torch.float64)")) ==
        Reload::swapped);
  const at::Tensor z = Hosted::matrices(2);
  CHECK(host.policy.run({z})[0].equal(z * 2));
  CHECK(host.policy.version().number == 1);
  REQUIRE(host.policy.version().last_error);
  CHECK(host.policy.version().last_error->message.find("type of output 'y'") != std::string::npos);
}

TEST_CASE("of two versions on trial in a row, the last one that is known to answer stands by") {
  Hosted host;
  CHECK(host.policy.replace(with_body("return torch.linalg_cholesky(z - 9 * torch.eye(3))")) == Reload::swapped);
  CHECK(host.policy.replace(with_body("return torch.linalg_cholesky(z - 8 * torch.eye(3))")) == Reload::swapped);
  CHECK(host.policy.version().number == 3);
  const at::Tensor z = Hosted::matrices(2);
  CHECK(host.policy.run({z})[0].equal(z * 2));
  CHECK(host.policy.version().number == 1);
}

TEST_CASE("a script's own mistake is refused at once, on whatever values it shows") {
  Hosted host;
  for (const char* body :
       {"return torch.mm(z, z)", "return z + nothing", "error('no')", "return torch.linalg_cholesky(z:flatten(1))",
        "return torch.nosuch(z)", "return torch.linalg_cholesky(z + 2 * torch.eye(3)):view(-1, 2)"}) {
    CAPTURE(std::string(body));
    CHECK(host.policy.replace(with_body(body)) == Reload::refused);
    CHECK(host.policy.version().number == 1);
  }
  CHECK_FALSE(host.logged("not captured in advance"));
}

TEST_CASE("indices: synthetic ones in range are found, and a table without rows is no mistake of the script") {
  triage::RuntimeOptions options;
  options.trial_calls = 1;
  options.trial_seconds = 0;
  options.log = triage::test::no_log();
  Runtime runtime(options);
  Policy policy =
      runtime.load_source("return policy {outputs = {'y'}, run = function(i) return i:to(torch.float32) end}", "i.lua");
  const at::Tensor ids = at::tensor({0L, 0L});
  policy.run({ids});
  const auto with_table = [](const std::string& table) {
    return "local t = " + table +
           "\nreturn policy {outputs = {'y'}, run = function(i) return t:index_select(0, i) end}";
  };
  CHECK(policy.replace(with_table("torch.full({1}, 5.0)")) == Reload::swapped);  // one row: index 1 is out of range
  CHECK(policy.graphs().size() == 1);
  CHECK(policy.run({ids})[0].equal(at::tensor({5.0f, 5.0f})));
  CHECK(policy.replace(with_table("torch.zeros({0})")) == Reload::swapped);
  CHECK(policy.graphs().empty());
  CHECK(policy.run({ids})[0].equal(at::tensor({5.0f, 5.0f})));  // by the version before
  CHECK(policy.version().number == 2);
}

TEST_CASE("the last good source on disk is that of a version that has answered") {
  const auto folder = std::filesystem::temp_directory_path() / ("triage_trial_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto file = folder / "trial.lua";
  const auto write = [&](const std::string& text) { std::ofstream(file) << text; };
  const auto restarted = [&] {  // a new process that finds the file broken
    write("return (");
    triage::RuntimeOptions options;
    options.cache_dir = folder / "cache";
    options.log = triage::test::no_log();
    Runtime runtime(options);
    return runtime.load(file).run({Hosted::matrices(2)})[0];
  };
  const at::Tensor z = Hosted::matrices(2);
  {
    triage::RuntimeOptions options;
    options.cache_dir = folder / "cache";
    options.log = triage::test::no_log();
    Runtime runtime(options);
    write(first_version);
    Policy policy = runtime.load(file);
    policy.run({z});
    write(with_body("return torch.linalg_cholesky(z - 2 * torch.eye(3))"));
    CHECK(policy.reload() == Reload::swapped);
    CHECK(restarted().equal(z * 2));
    policy.run({z});
    CHECK(restarted().equal(at::linalg_cholesky(z - 2 * at::eye(3))));
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("threads that meet a version on trial at once all get an answer of one version") {
  Hosted host;
  const at::Tensor z = Hosted::matrices(2), right = z * 2;
  for (int round = 0; round < 20; ++round) {
    const std::string shift = std::to_string(9 + round);
    REQUIRE(host.policy.replace(with_body("return torch.linalg_cholesky(z - " + shift + " * torch.eye(3))")) ==
            Reload::swapped);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        try {
          if (!host.policy.run({z})[0].equal(right)) ++wrong;
        } catch (const std::exception&) {
          ++wrong;
        }
      });
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(host.policy.version().number == 1);
  }
}
