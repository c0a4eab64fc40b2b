// Random numbers of policies: their own, the same ones in every mode, and none of the host's.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <atomic>
#include <thread>

#include "runtime/random/sequence.h"
#include "tests/lua/policies/policies.h"

using triage::Policy;
using triage::Runtime;
using triage::test::positive_batch;

namespace {

/// Every kind of operator that draws, with and without a generator in its schema.
const std::string draws = R"(
return function(z)
  local noise = torch.randn({4, 8}) + torch.rand_like(z) + torch.randn_like(z) + torch.rand({4, 8})
  local whole = torch.randint(0, 100, {4, 8}) + torch.randperm(8) + torch.randint_like(z, 50)
  local kept = torch.bernoulli(torch.full({4, 8}, 0.5)) + torch.dropout(z, 0.5, true)
  local chosen = torch.multinomial(torch.ones({4, 8}), 8)
  return z + noise + whole + kept + chosen + torch.normal(z, 0.1)
end
)";

std::vector<at::Tensor> calls(const Policy& policy, int count = 4) {
  std::vector<at::Tensor> results;
  for (int i = 0; i < count; ++i) results.push_back(policy.run({positive_batch()})[0]);
  return results;
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return x.equal(y); });
}

/// Whether `fn` leaves the default generator of the host where it was.
template <typename Fn>
bool leaves_host_alone(const Fn& fn) {
  at::manual_seed(11);
  const at::Tensor expected = at::rand({64});
  at::manual_seed(11);
  fn();
  return at::rand({64}).equal(expected);
}

}  // namespace

TEST_CASE("a policy never draws from the host's generator, and gives the same numbers in every mode") {
  std::vector<at::Tensor> wanted;
  for (const char* mode : {"script", "eager", "aot_eager", "fused"}) {
    CAPTURE(mode);
    triage::RuntimeOptions options;
    const bool script = std::string(mode) == "script";
    if (!script) options.backend = mode;
    options.seed = 42;
    const auto stance = triage::get_stance();
    if (script) triage::set_stance(triage::Stance::force_eager);
    CHECK(leaves_host_alone([&] {
      const Policy policy = Runtime(options).load_source(draws);
      std::vector<at::Tensor> results = calls(policy);
      if (wanted.empty()) wanted = results;
      CHECK(equal(results, wanted));
      CHECK_FALSE(results[0].equal(results[1]));
      policy.prepare({positive_batch().to(at::kDouble)});  // other kinds of calls are no calls
      policy.manual_seed(42);
      CHECK(equal(calls(policy), wanted));
      policy.manual_seed(43);
      CHECK_FALSE(equal(calls(policy), wanted));
      if (!script) CHECK(policy.graphs().size() > 0);
    }));
    triage::set_stance(stance);
  }
  at::manual_seed(5);
  CHECK(equal(calls(Runtime({.seed = 42}).load_source(draws)), wanted));  // whatever the host's is seeded with
}

TEST_CASE("numbers that are drawn like a result go to the same elements, however the input lies in memory") {
  const std::vector<std::string> draws_like = {
      "torch.randn_like(y)",
      "torch.rand_like(y * 2)",
      "torch.randint_like(y, 100)",
      "torch.multinomial(y:abs() + 0.1, 3)",
      "torch.dropout(y + 1, 0.5, true)",
      "torch.normal(y, 0.1)",
      "torch.rand_like(y:t():contiguous() * 2):t()",
      "torch.rand_like((y * 2):t() + 1):t()",
      "torch.rand_like(torch.where(y:gt(0), y, z))",
      "torch.rand_like(z + y:flip(0))",
  };
  const auto batch = [](int64_t kind) {
    const at::Tensor dense = at::linspace(-1, 1, 128);
    at::Tensor z = kind == 0   ? dense.view({8, 16}).clone()
                   : kind == 1 ? dense.view({16, 8}).clone().t()
                               : at::linspace(-1, 1, 256).view({8, 32}).narrow(1, 3, 16);
    z[2][3] = triage::test::nan_value;
    return z;
  };
  for (const std::string& draw : draws_like) {
    CAPTURE(draw);
    const std::string source =
        "return policy { outputs = {'y', 'drawn', 'f'}, run = function(z) local f = flag_nan(z, 'z')\n"
        "local y, f = fix(z, f, 'z') return y * 3 + 1, " +
        draw + ", f end }";
    std::vector<at::Tensor> wanted;
    for (const char* mode : {"script", "eager", "aot_eager", "fused"}) {
      CAPTURE(mode);
      const bool script = std::string(mode) == "script";
      triage::RuntimeOptions options;
      if (!script) options.backend = mode;
      const auto stance = triage::get_stance();
      if (script) triage::set_stance(triage::Stance::force_eager);
      const Policy policy = Runtime(options).load_source(source);
      std::vector<at::Tensor> results;
      for (const int64_t kind : {0, 1, 1, 2, 0, 1})
        for (int again = 0; again < 2; ++again) {
          policy.manual_seed(7);
          const auto all = policy.run({batch(kind)});
          results.push_back(all[0]);
          results.push_back(all[1]);
        }
      triage::set_stance(stance);
      if (script) wanted = results;
      CHECK(equal(results, wanted));
    }
  }
}

TEST_CASE("math.random of a policy draws from the policy's own generator, which its host seeds") {
  const std::string source = "return function(z) return z * 0 + math.random(1000000) + math.random() end";
  const auto with_seed = [](uint64_t seed) { return triage::RuntimeOptions{.seed = seed}; };
  std::vector<at::Tensor> wanted;
  CHECK(leaves_host_alone([&] {
    const Policy policy = Runtime(with_seed(42)).load_source(source);
    wanted = calls(policy);
    CHECK_FALSE(wanted[0].equal(wanted[1]));
    policy.prepare({positive_batch().to(at::kDouble)});
    policy.manual_seed(42);
    CHECK(equal(calls(policy), wanted));
  }));
  CHECK(equal(calls(Runtime(with_seed(42)).load_source(source)), wanted));
  CHECK_FALSE(equal(calls(Runtime(with_seed(43)).load_source(source)), wanted));
}

TEST_CASE("math.random of a policy takes and gives what Lua's does") {
  const std::string check = R"(
local function wrong(text, ...) local ok, message = pcall(math.random, ...) return not ok and message:find(text, 1, true) end
return function(z)
  local seen = {}
  for i = 1, 2000 do
    local share, die, other, any = math.random(), math.random(6), math.random(-3, 3), math.random(0)
    assert(math.type(share) == 'float' and share >= 0 and share < 1)
    assert(math.type(die) == 'integer' and die >= 1 and die <= 6 and other >= -3 and other <= 3)
    assert(math.type(any) == 'integer' and not seen[any])
    seen[any], seen[die] = true, true
    local widest = math.random(math.mininteger, math.maxinteger)
    assert(math.type(widest) == 'integer')
  end
  for i = 1, 6 do assert(seen[i]) end
  assert(math.random(5, 5) == 5 and math.random(2.0) <= 2)
  assert(wrong('interval is empty', -1) and wrong('interval is empty', 3, 2) and wrong('wrong number', 1, 2, 3))
  assert(wrong('number expected', 'x') and wrong('no integer representation', 1.5))
  return z
end)";
  CHECK_NOTHROW(Runtime().load_source(check).run({positive_batch()}));
}

TEST_CASE("gradients of what a policy dropped are those of the same call") {
  for (const char* backend : {"eager", "aot_eager", "fused"}) {
    CAPTURE(backend);
    CHECK(leaves_host_alone([&] {
      triage::RuntimeOptions options;
      options.backend = backend;
      const Policy policy =
          Runtime(options).load_source("return function(z) return torch.dropout(z, 0.5, true) * 3 end");
      for (int i = 0; i < 4; ++i) {
        const at::Tensor z = positive_batch().set_requires_grad(true);
        const at::Tensor out = policy.run({z})[0];
        out.sum().backward();
        CHECK(z.grad().ne(0).equal(out.detach().ne(0)));
      }
    }));
  }
}

TEST_CASE("loading, the policy's own tests and a reload draw apart from its calls") {
  const auto text = [](int version) {
    return "local w = torch.randn({8})\nreturn policy { inputs = {'z'}, run = function(z) return torch.rand_like(z) + "
           "w * 0 + " +
           std::to_string(version) +
           " end,\n tests = {{ name = 'draws', args = function() return torch.randn({4, 8}) end, check = function() "
           "return "
           "true end }} }";
  };
  CHECK(leaves_host_alone([&] {
    const std::vector<at::Tensor> wanted = calls(Runtime().load_source(text(0)), 6);
    const Policy policy = Runtime().load_source(text(0));
    for (int i = 0; i < 6; ++i) {
      if (i == 2) CHECK(policy.replace(text(1)) == triage::Reload::swapped);
      if (i == 4)
        CHECK(policy.replace("return function(z) return torch.rand_like(z):nonsense() end") != triage::Reload::swapped);
      const at::Tensor result = policy.run({positive_batch()})[0];
      CHECK(at::allclose(result - (i >= 2 ? 1 : 0), wanted[static_cast<size_t>(i)], 0, 1e-6));
    }
  }));
}

TEST_CASE("a function of the host draws from the host's generator, also when a policy calls it") {
  Runtime runtime;
  runtime.define(
      "noise", [](const std::vector<at::Tensor>& inputs) { return std::vector<at::Tensor>{at::rand_like(inputs[0])}; });
  const Policy policy = runtime.load_source("return function(z) return noise(z) + torch.rand_like(z) * 0 end");
  at::manual_seed(11);
  const at::Tensor expected = at::rand_like(positive_batch());
  for (int i = 0; i < 3; ++i) {
    at::manual_seed(11);
    CHECK(policy.run({positive_batch()})[0].equal(expected));
  }
}

TEST_CASE("policies on several threads draw each number once, and leave threads of the host alone") {
  Runtime runtime;
  const Policy policy =
      runtime.load_source("return function(z) return torch.randint_like(z, 0, 1000000000) + z * 0 end");
  const at::Tensor z = at::zeros({64}, at::kDouble);
  std::vector<at::Tensor> wanted;
  for (int i = 0; i < 40; ++i) wanted.push_back(policy.run({z})[0]);
  policy.manual_seed(67280421310721);
  CHECK(leaves_host_alone([&] {
    std::vector<std::vector<at::Tensor>> got(4);
    std::vector<std::thread> threads;
    for (auto& mine : got)
      threads.emplace_back([&] {
        for (int i = 0; i < 10; ++i) mine.push_back(policy.run({z})[0]);
      });
    for (std::thread& thread : threads) thread.join();
    std::vector<at::Tensor> all;
    for (const auto& mine : got) all.insert(all.end(), mine.begin(), mine.end());
    const auto drawn = [](const std::vector<at::Tensor>& results) {
      return std::get<0>(at::stack(results).select(1, 0).sort());
    };
    CHECK(drawn(all).equal(drawn(wanted)));
  }));
}

TEST_CASE("outside of a scope nothing is drawn from it, and scopes nest") {
  triage::random::Sequence outer(1), inner(2), same(1);
  const at::Tensor from_outer = [&] {
    const triage::random::DrawFrom draws(&same);
    return at::rand({8});
  }();
  CHECK(leaves_host_alone([&] {
    const triage::random::DrawFrom draws(&outer);
    {
      const triage::random::DrawFrom inside(&inner);
      CHECK_FALSE(at::rand({8}).equal(from_outer));
    }
    CHECK(at::rand({8}).equal(from_outer));
    const triage::random::Replay again(true);
    const at::Tensor first = at::dropout(at::ones({64}), 0.5, true);
    const triage::random::DrawFrom later(&outer);
    CHECK(at::dropout(at::ones({64}), 0.5, true).equal(first));
    at::Generator own = at::detail::createCPUGenerator(9), twin = at::detail::createCPUGenerator(9);
    CHECK(at::rand({8}, own).equal(at::empty({8}).uniform_(0, 1, twin)));  // a generator that is named is used
  }));
}
