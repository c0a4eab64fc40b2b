// Graphs that fail in a branch that the script does not take, as a host sees them: what it gets, how often a graph
// fails, donated inputs, and the numbers of a policy.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/backend.h>
#include <triage/compiler_config.h>
#include <triage/runtime.h>

#include <atomic>
#include <string>
#include <vector>

#include "runtime/capture/cache/failed_sizes.h"

namespace {

using triage::Policy;
using triage::Runtime;

std::atomic<int> eager_runs{0}, eager_failures{0};

/// `eager`, which counts.
struct CountingFailures final : triage::Executable {
  explicit CountingFailures(std::unique_ptr<triage::Executable> inner) : inner(std::move(inner)) {}
  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
           const triage::CallContext& call) const override {
    ++eager_runs;
    try {
      inner->run(inputs, outputs, call);
    } catch (...) {
      ++eager_failures;
      throw;
    }
  }
  std::unique_ptr<triage::Executable> inner;
};

triage::RuntimeOptions with(const std::string& backend) {
  triage::register_backend("counts_failures", [](const triage::graph::Graph& graph, const std::vector<at::Tensor>& in) {
    return std::make_unique<CountingFailures>(triage::find_backend("eager")(graph, in));
  });
  triage::RuntimeOptions options;
  options.backend = backend;
  options.seed = 7;
  return options;
}

const std::string largest = R"(
return policy {
  inputs = {"z"},
  run = function(z)
    local f = flag_nan_and_inf(z, "in")
    return IF(HAS(f), function() return z - z:nan_to_num(0.0):max() end):ELSE(function() return z * 2 end)
  end,
}
)";

const std::string draws_of_two = R"(
return function(z)
  local r = torch.rand_like(z) + torch.randn({4})
  return IF(z:sum() < 0, function() return r - z:max() end):ELSE(function() return z + r end)
end
)";

at::Tensor rising_batch(int64_t rows) { return at::arange(1, 1 + rows * 4, at::kFloat).view({rows, 4}); }

}  // namespace

TEST_CASE("a policy whose graph fails in a branch that is not taken gives what its script gives, on every batch") {
  for (const char* backend : {"eager", "aot_eager", "fused"})
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{3, 0, 1, 0, 2, 31, 0, 32, 33}, std::vector<int64_t>{0, 3, 0, 1, 33, 0}}) {
      CAPTURE(backend);
      const Policy policy = Runtime(with(backend)).load_source(largest);
      for (const int64_t rows : sizes) {
        CAPTURE(rows);
        CHECK(policy.run({rising_batch(rows)})[0].equal(rising_batch(rows) * 2));
        const at::Tensor given = rising_batch(rows), kept = given.clone();
        CHECK(policy.run({given}, {.donate = {0}})[0].equal(kept * 2));
      }
      at::Tensor bad = rising_batch(2);
      bad[1][1] = std::numeric_limits<float>::infinity();
      CHECK(policy.run({bad})[0].equal(bad - bad.nan_to_num(0).max()));
    }
}

TEST_CASE("a graph fails once on inputs of a kind, and serves all others as before") {
  const Policy policy = Runtime(with("counts_failures")).load_source(largest);
  policy.run({rising_batch(3)});
  eager_runs = eager_failures = 0;
  for (int i = 0; i < 5; ++i) policy.run({rising_batch(0)});
  CHECK(eager_failures == 1);
  eager_runs = 0;
  for (int64_t rows = 1; rows < 20; ++rows) policy.run({rising_batch(rows)});
  CHECK(eager_runs == 19);
  CHECK(eager_failures == 1);
  CHECK(policy.graphs().size() == 1);
}

TEST_CASE("a graph that fails on many sizes is in the end for the one that it was captured for") {
  const Policy policy = Runtime(with("counts_failures")).load_source(R"(
return function(z)
  return IF(z:sum() > 0, function() return z * 2 end):ELSE(function() return z:mean(0, {keepdim = true}) end)
end
)");
  policy.run({rising_batch(1)});
  eager_runs = eager_failures = 0;
  for (int round = 0; round < 3; ++round)
    for (int64_t rows = 2; rows < 60; ++rows) CHECK(policy.run({rising_batch(rows)})[0].equal(rising_batch(rows) * 2));
  CHECK(eager_failures <= 17);
  const int before = eager_runs;
  policy.run({rising_batch(1)});
  CHECK(eager_runs == before + 1);
}

TEST_CASE("what a graph drew before it failed is drawn again") {
  const auto numbers = [](bool script) {
    const Policy policy = Runtime(with("eager")).load_source(draws_of_two);
    const auto stance = triage::get_stance();
    if (script) triage::set_stance(triage::Stance::force_eager);
    std::vector<at::Tensor> results;
    for (const int64_t rows : {3, 0, 2, 0, 5}) results.push_back(policy.run({rising_batch(rows)})[0]);
    triage::set_stance(stance);
    return results;
  };
  const auto wanted = numbers(true), got = numbers(false);
  for (size_t i = 0; i < wanted.size(); ++i) CHECK(got[i].equal(wanted[i]));
}

TEST_CASE("an error of the branch that is taken is the script's, and its graph goes on") {
  const Policy policy = Runtime(with("counts_failures"))
                            .load_source(
                                "return function(z) return IF(z:sum() > 0, function() return z:view({2, -1}) "
                                "end):ELSE(function() return z:view({2, -1}) * 2 end) end");
  policy.run({at::ones({4})});
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS_WITH_AS(policy.run({at::ones({3})}), doctest::Contains("is invalid for input of size 3"),
                         triage::PolicyError);
    CHECK(policy.run({at::ones({6})})[0].equal(at::ones({2, 3})));
  }
  CHECK(policy.graphs().size() == 1);
}

TEST_CASE("sizes that a graph is not for: up to a bound one by one, then all but those of the capture") {
  triage::capture::FailedSizes failed({rising_batch(2), rising_batch(3)});
  CHECK_FALSE(failed.exclude({rising_batch(2), rising_batch(3)}));
  failed.add({rising_batch(2), rising_batch(4)});
  CHECK(failed.exclude({rising_batch(2), rising_batch(4)}));
  CHECK_FALSE(failed.exclude({rising_batch(4), rising_batch(2)}));
  for (int64_t rows = 5; rows < 40; ++rows) failed.add({rising_batch(rows), rising_batch(rows)});
  CHECK(failed.exclude({rising_batch(77), rising_batch(78)}));
  CHECK_FALSE(failed.exclude({rising_batch(2), rising_batch(3)}));
  failed.add({rising_batch(2), rising_batch(3)});
  CHECK(failed.exclude({rising_batch(2), rising_batch(3)}));
}
