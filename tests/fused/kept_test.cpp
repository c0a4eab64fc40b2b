// What follows from numbers and sizes alone is computed when they change.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <thread>

#include "tests/fused/programs.h"

namespace triage::fused {
namespace {

/// A row that all samples have in common, of a number and of a size; it also leaves the graph, as itself and as a view.
Tensors with_common_row(const Tensors& in) {
  const at::Tensor token = at::arange(in[0].size(1));
  const at::Tensor row = at::where(at::eq(token, in[1]), at::zeros({}), at::full({}, -inf));
  return {at::where(at::isnan(in[0]).any(-1, true), row, in[0]), row, row.unsqueeze(0)};
}

at::Tensor number(int64_t value) { return at::scalar_tensor(value, at::kLong); }

bool computes_the_row(const Executable& executable, const Tensors& inputs) {
  Tensors outputs;
  const bool computes = operators_called(executable, inputs, &outputs).count("aten::arange") > 0;
  const Tensors expected = with_common_row(inputs);
  for (size_t i = 0; i < expected.size(); ++i) CHECK(same_bits(outputs[i], expected[i]));
  for (const at::Tensor& output : outputs) output.fill_(7);  // is the caller's alone
  return computes;
}

}  // namespace

TEST_CASE("a row that follows from a number and a size is made once, until one of them changes") {
  const at::Tensor z = with_bad_rows({31, 70}), one = with_bad_rows({1, 70}), narrow = with_bad_rows({32, 33});
  const auto fused = compiled(with_common_row, {z, number(2)});
  CHECK(computes_the_row(*fused, {z, number(2)}));
  CHECK(!computes_the_row(*fused, {z, number(2)}));
  CHECK(!computes_the_row(*fused, {one, number(2)}));  // the size of the batch is not read
  CHECK(computes_the_row(*fused, {z, number(3)}));
  CHECK(!computes_the_row(*fused, {z, number(2)}));
  CHECK(!computes_the_row(*fused, {with_bad_rows({0, 70}), number(3)}));
  const at::Tensor changes = number(5);
  CHECK(computes_the_row(*fused, {z, changes}));
  changes.fill_(6);  // the same tensor
  CHECK(computes_the_row(*fused, {z, changes}));
  const auto other = compiled(with_common_row, {narrow, number(2)});
  CHECK(computes_the_row(*other, {narrow, number(2)}));
  CHECK(!computes_the_row(*other, {narrow, number(2)}));
}

TEST_CASE("in inference mode it is another row, for such a tensor is of no use outside") {
  const at::Tensor z = with_bad_rows({33, 70});
  const auto fused = compiled(with_common_row, {z, number(2)});
  {
    const c10::InferenceMode on;
    CHECK(computes_the_row(*fused, {z, number(2)}));
    CHECK(!computes_the_row(*fused, {z, number(2)}));
  }
  CHECK(computes_the_row(*fused, {z, number(2)}));
  CHECK(!computes_the_row(*fused, {z, number(2)}));
}

TEST_CASE("threads that call with different numbers get their own rows") {
  const at::Tensor z = with_bad_rows({32, 70});
  const auto fused = compiled(with_common_row, {z, number(0)});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 500; ++i) {
        const Tensors inputs{z, number((i * (thread + 1)) % 7)};
        const Tensors outputs = run(*fused, inputs), expected = with_common_row(inputs);
        for (size_t at = 0; at < expected.size(); ++at) wrong += !same_bits(outputs[at], expected[at]);
        for (const at::Tensor& output : outputs) output.fill_(-1);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

}  // namespace triage::fused
