// Memory of warm calls: what parts hand to one another, and outputs, come from pools.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <runtime/backends/fused/fusion_groups.h>
#include <triage/flags.h>
#include <triage/graph.h>

#include <thread>

#include "runtime/operators/untrusted.h"
#include "tests/fused/programs.h"
#include "tests/memory_use.h"

namespace triage::fused {
namespace {

const Program layers = [](const Tensors& in) {
  auto [z, f] = fix(in[0], flag_nan_and_inf(in[0], 1), 1);
  const at::Tensor h = at::linear(z.tanh(), in[1], in[2]).relu() * 2;
  const at::Tensor y = at::addmm(in[3], h - h.mean(-1, true), in[4].t());
  return Tensors{(y * 0.01).softmax(-1), flag_nan_and_inf(y, 2, f), at::mm(h, in[5])};
};

/// Products of matrices add up what differs in the last places.
bool near_largest(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_floating_point()) return a.equal(b);
  return a.sizes() == b.sizes() && (a - b).abs().max().item<float>() <= 1e-5 * a.abs().max().item<float>();
}

Tensors inputs_of_layers(int64_t n) {
  return {with_bad_rows({n, 96}), data({80, 96}), data({80}), data({64}), data({64, 80}), data({80, 72})};
}

/// What warm calls give, and how many large blocks of memory they take.
std::pair<Tensors, int> warm_calls(const Executable& executable, const Tensors& given) {
  Tensors got;
  for (int call = 0; call < 3; ++call) got = run(executable, given);
  test::CountedTensorMemory memory;
  memory.begin();
  for (int call = 0; call < 5; ++call) got = run(executable, given);
  return {std::move(got), memory.large_blocks()};
}

}  // namespace

TEST_CASE("warm calls of several parts take no fresh memory for what one hands to the next") {
  const Tensors given = inputs_of_layers(256), expected = layers(given);
  size_t pooled = 0;
  for (const FusionGroup& part : cut(graph::trace(layers, given))) pooled += part.pooled;
  CHECK(pooled == 3);
  const auto fused = compiled(layers, given);
  const auto [got, large_blocks] = warm_calls(*fused, given);
  CHECK(large_blocks == 0);
  {
    test::CountedTensorMemory memory;
    memory.begin();
    at::empty({1 << 16});
    CHECK(memory.large_blocks() == 1);
  }
  for (size_t i = 0; i < got.size(); ++i) CHECK(near_largest(expected[i], got[i]));
}

TEST_CASE("results of joins, gathers and running sums between loops are pooled too, with ATen's bits") {
  const Program joins = [](const Tensors& in) {
    const at::Tensor a = in[0].relu() * 2, b = in[1] - in[1].mean(-1, true);
    const at::Tensor both = at::cat({a, b, in[0]}, 1);
    const at::Tensor places = at::gather(both.abs() + 1, 1, in[2]);
    return Tensors{places * 3 - 1, (a - 1).cumsum(1) * 0.5, flag_nan_and_inf(both, 2)};
  };
  for (const int64_t n : {256, 1, 33}) {
    const Tensors given{with_bad_rows({n, 96}), data({n, 40}), at::randint(0, 232, {n, 64})}, expected = joins(given);
    const auto fused = compiled(joins, given);
    const auto [got, large_blocks] = warm_calls(*fused, given);
    CHECK(large_blocks == 0);
    for (size_t i = 0; i < got.size(); ++i) CHECK(near_largest(expected[i].nan_to_num(9), got[i].nan_to_num(9)));
  }
}

TEST_CASE("pooled memory is given to nobody while somebody holds it, in one thread or several") {
  const Tensors given = inputs_of_layers(128), expected = layers(given);
  const auto fused = compiled(layers, given);
  Tensors held;
  for (int call = 0; call < 7; ++call) held.push_back(run(*fused, given)[2]);
  for (size_t i = 0; i < held.size(); ++i)
    for (size_t k = 0; k < i; ++k) CHECK_FALSE(held[i].is_alias_of(held[k]));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int call = 0; call < 40; ++call) {
        const int64_t n = t % 2 ? 128 : 64 + call % 3;  // sizes that change, beside those that do not
        Tensors mine = given;
        mine[0] = given[0].slice(0, 0, n);
        const Tensors got = run(*fused, mine);
        for (size_t i = 0; i < got.size(); ++i) wrong += !near_largest(expected[i].slice(0, 0, n), got[i]);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  for (const at::Tensor& one : held) CHECK(near_largest(expected[2], one));
}

TEST_CASE("a pooled call that fails says where, as the interpreter does") {
  const Tensors given = inputs_of_layers(128);
  const auto fused = compiled(layers, given);
  for (int call = 0; call < 2; ++call) run(*fused, given);
  Tensors wrong = given;
  wrong[4] = data({64, 79});
  CHECK_THROWS_AS(run(*fused, wrong), Error);
  CHECK(near_largest(layers(given)[0], run(*fused, given)[0]));
}

TEST_CASE("a pooled call of what is not trusted is held to its contract") {
  const Program product = [](const Tensors& in) { return Tensors{at::mm(in[0], in[1]).relu() + 1}; };
  const Tensors given{data({256, 96}), data({96, 80})};
  size_t pooled = 0;
  for (const FusionGroup& part : cut(graph::trace(product, given))) pooled += part.pooled;
  REQUIRE(pooled == 1);
  const auto fused = compiled(product, given);
  for (int call = 0; call < 3; ++call) CHECK(near_largest(product(given)[0], run(*fused, given)[0]));
  operators::Untrusted::Terms terms{.bytes = int64_t{1} << 30};
  const operators::Untrusted graphs(&terms);
  CHECK(near_largest(product(given)[0], run(*fused, given)[0]));
  terms.bytes = 1000;
  std::string message;
  try {
    run(*fused, given);
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK_MESSAGE(message.find("aten::mm") != std::string::npos, message);
  CHECK_MESSAGE(message.find("MiB of memory") != std::string::npos, message);
}

}  // namespace triage::fused
