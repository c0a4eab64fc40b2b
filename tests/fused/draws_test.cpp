// Random numbers that are drawn like a result: for the elements that the script's have, in whatever order loops give
// theirs.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <runtime/backends/eager.h>
#include <triage/backend.h>
#include <triage/graph.h>

#include "tests/fused/programs.h"

namespace triage::fused {
namespace {

Tensors seeded(const Executable& executable, const Tensors& inputs) {
  at::manual_seed(3);
  return run(executable, inputs);
}

/// The last output is drawn.
void draws_alike(const std::string& text, const Tensors& captured, const std::vector<Tensors>& calls) {
  CAPTURE(text);
  graph::Graph graph = graph::parse(text);
  graph.set_recorded_types();
  const auto fused = find_backend("fused")(graph, captured), eager = compile_eager(graph, captured);
  for (const Tensors& inputs : calls)
    for (int again = 0; again < 3; ++again) {
      CAPTURE(inputs[0].strides());
      CHECK(same_bits(seeded(*fused, inputs).back(), seeded(*eager, inputs).back()));
    }
}

const std::string drawn_for_first = R"(graph drawn(%x: "f32[6, 8]"):
  %1: "f32[6, 8]" = aten::mul.Scalar(%x, 2.0)
  %2: "f32[6, 8]" = aten::relu(%1)
  %3: "f32[6, 8]" = aten::rand_like(%2)
  %4: "f32[6, 8]" = aten::mul.Tensor(%3, %2)
  %5: "f32[6, 8]" = aten::add.Tensor(%4, %2)
  return %5, %3
)";

}  // namespace

TEST_CASE("numbers that are drawn like a loop's result go to the elements that ATen gives them") {
  const Tensors dense{data({6, 8})}, transposed{data({8, 6}).t()}, gaps{data({6, 16}).slice(1, 0, 8)};
  draws_alike(drawn_for_first, dense, {dense, transposed, gaps, dense, {data({9, 5}).t()}});
  draws_alike(drawn_for_first, transposed, {dense, transposed, gaps});
  for (const std::string draw : {"aten::bernoulli.p(%2, 0.5)", "aten::dropout(%2, 0.5, True)", "aten::rand_like(%x)"}) {
    std::string text = drawn_for_first;
    text.replace(text.find("aten::rand_like(%2)"), 19, draw);
    draws_alike(text, dense, {dense, transposed, gaps});
  }
}

TEST_CASE("the order of what is drawn for is kept by all that it follows from, in other calls of a region too") {
  const auto layers = [](const std::string& drawn_for) {
    return R"(graph layers(%x: "f32[6, 8]"):
  %0: "f32[6, 8]" = aten::mul.Scalar(%x, 1.5)  # a.lua:1 in layer#1
  %1: "f32[6, 8]" = aten::relu(%0)  # a.lua:1 in layer#1
  %2: "f32[6, 8]" = aten::mul.Scalar(%1, 1.5)  # a.lua:1 in layer#2
  %3: "f32[6, 8]" = aten::relu(%2)  # a.lua:1 in layer#2
  %4: "f32[6, 8]" = aten::rand_like()" +
           drawn_for + ")\n  return %1, %3, %4\n";
  };
  const Tensors dense{data({6, 8})}, transposed{data({8, 6}).t()};
  for (const char* of : {"%1", "%3"}) draws_alike(layers(of), dense, {dense, transposed});
}

TEST_CASE("calls that write to memory of a pool keep the order of what is drawn for") {
  const std::string text = R"(graph joined(%x: "f32[4, 8, 16, 16]"):
  %1: "f32[4, 8, 16, 16]" = aten::mul.Scalar(%x, 2.0)
  %2: "f32[4, 8, 16, 16]" = aten::relu(%1)
  %3: "f32[8, 8, 16, 16]" = aten::cat([%x, %2], 0)
  %4: "f32[8, 8, 16, 16]" = aten::rand_like(%3)
  return %2, %4
)";
  const at::Tensor dense = data({4, 8, 16, 16}), last = dense.contiguous(at::MemoryFormat::ChannelsLast);
  draws_alike(text, {dense}, {{dense}, {last}});
}

}  // namespace triage::fused
