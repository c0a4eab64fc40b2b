// What follows from params and sizes alone is computed when they change.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>
#include <triage/graph.h>

#include <atomic>
#include <thread>

#include "runtime/backends/fused/fused.h"
#include "tests/fused/programs.h"

namespace triage::fused {
namespace {

/// A row that all samples have in common, of a param and of a size.
constexpr const char* common_row_text = R"(graph repair(%x: "f32[31, 70]", %token: "i64[]" param):
  %1: "i64[]" = triage::size(%x, 1)
  %2: "i64[70]" = aten::arange(%1, device="cpu")
  %3: "b8[70]" = aten::eq.Tensor(%2, %token)
  %4: "f32[70]" = aten::where.Scalar(%3, 0.0, other=-inf)
  %5: "b8[31, 70]" = aten::isnan(%x)
  %6: "b8[31, 1]" = aten::any.dim(%5, -1, True)
  %7: "f32[31, 70]" = aten::where.self(%6, %4, %x)
  %8: "f32[31, 70]" = aten::add.Tensor(%7, %4)
  return %7, %8
)";

Tensors with_common_row(const Tensors& in) {
  const at::Tensor row = at::where(at::eq(at::arange(in[0].size(1)), in[1]), 0.0, -inf).to(at::kFloat);
  const at::Tensor mended = at::where(at::isnan(in[0]).any(-1, true), row, in[0]);
  return {mended, mended + row};
}

std::unique_ptr<Executable> compiled_text(const std::string& program) {
  return compile_fused(graph::parse(program), {with_bad_rows({31, 70}), at::scalar_tensor(2, at::kLong)});
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
  const at::Tensor z = with_bad_rows({31, 70}), two = with_bad_rows({2, 70}), narrow = with_bad_rows({32, 33});
  const auto fused = compiled_text(common_row_text);
  CHECK(computes_the_row(*fused, {z, number(2)}));
  CHECK(!computes_the_row(*fused, {z, number(2)}));
  CHECK(!computes_the_row(*fused, {two, number(2)}));  // the size of the batch is not read
  CHECK(computes_the_row(*fused, {z, number(3)}));
  CHECK(!computes_the_row(*fused, {z, number(2)}));
  CHECK(!computes_the_row(*fused, {with_bad_rows({0, 70}), number(3)}));
  const at::Tensor changes = number(5);
  CHECK(computes_the_row(*fused, {z, changes}));
  changes.fill_(6);  // the same tensor
  CHECK(computes_the_row(*fused, {z, changes}));
  CHECK(computes_the_row(*fused, {narrow, number(2)}));
  CHECK(!computes_the_row(*fused, {narrow, number(2)}));
}

TEST_CASE("in inference mode it is another row, for such a tensor is of no use outside") {
  const at::Tensor z = with_bad_rows({33, 70});
  const auto fused = compiled_text(common_row_text);
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
  const auto fused = compiled_text(common_row_text);
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

TEST_CASE("what the host may write to, what leaves the graph and numbers of the data are computed in every call") {
  const at::Tensor z = with_bad_rows({31, 70}), table = at::arange(70, at::kFloat);
  graph::Graph graph("variable");
  graph::Value* const x =
      graph.add_input("x", graph::InputKind::tensor, graph::parse(common_row_text).inputs()[0].value->meta);
  const auto flip = c10::Dispatcher::singleton().findSchemaOrThrow("aten::flip", "");
  const auto add = c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor");
  graph::Node* const flipped = graph.append(flip, {graph.add_variable(table), c10::IValue(std::vector<int64_t>{0})}, 1);
  graph.append(add, {x, flipped->results[0], c10::IValue(1)}, 1);
  graph.set_outputs({graph.nodes().back()->results[0]});
  const auto fused = compile_fused(graph, {z});
  for (int i = 0; i < 3; ++i) {
    CHECK(same_bits(run(*fused, {z})[0], z + table.flip({0})));
    table.add_(1);
  }

  const std::string all = common_row_text;
  const auto leaving = compiled_text(all.substr(0, all.find("  return")) + "  return %4, %8\n");
  for (int i = 0; i < 3; ++i) {
    const Tensors outputs = run(*leaving, {z, number(2)});
    CHECK(outputs[0].select(0, 2).item<float>() == 0);
    outputs[0].fill_(5);
  }
  std::string data = all;
  data.replace(data.find(" param)"), 7, ")");
  const auto of_data = compiled_text(data);
  for (int i = 0; i < 3; ++i) CHECK(computes_the_row(*of_data, {z, number(2)}));
}

}  // namespace triage::fused
