// Calls of one region that compute alike are cut once (N01).
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <runtime/backends/fused/fusion_groups.h>
#include <runtime/backends/fused/loops/groups_text.h>
#include <runtime/backends/fused/regions.h>
#include <triage/backend.h>
#include <triage/graph.h>

#include "tests/fused/programs.h"

namespace triage::fused {
namespace {

/// `x = sigmoid(x * c) + x`, then a product with a weight, so often; each of them a call of a region.
graph::Graph stacked_layers(size_t count, const std::string& dtype = "f32") {
  std::string text = fmt::format("graph layers(%x: \"{0}[6, 8]\", %w: \"{0}[8, 8]\"):\n", dtype);
  std::string x = "%x";
  for (size_t i = 0; i < count; ++i) {
    const auto line = [&](size_t at, const std::string& call) {
      text += fmt::format("  %{}: \"{}[6, 8]\" = {}  # stack.lua:{} in layer#{}\n", 4 * i + at, dtype, call, at, i + 1);
    };
    line(0, fmt::format("aten::mul.Scalar({}, 1.5)", x));
    line(1, fmt::format("aten::sigmoid(%{})", 4 * i));
    line(2, fmt::format("aten::add.Tensor(%{}, {})", 4 * i + 1, x));
    line(3, fmt::format("aten::mm(%{}, %w)", 4 * i + 2));
    x = fmt::format("%{}", 4 * i + 3);
  }
  graph::Graph graph = graph::parse(text + "  return " + x + "\n");
  graph.set_recorded_types();
  return graph;
}

graph::Graph without_regions(const graph::Graph& graph) {
  graph::Graph plain = graph.clone();
  for (auto& node : plain.nodes()) node->source.region.clear();
  return plain;
}

Tensors results(const graph::Graph& graph, const Tensors& inputs) {
  return run(*find_backend("fused")(graph, inputs), inputs);
}

}  // namespace

TEST_CASE("N01: the calls of a region are in the text of a graph, which reads back the same") {
  const graph::Graph graph = stacked_layers(2);
  const std::string text = graph::print(graph);
  CHECK(text.find("# stack.lua:1 in layer#1\n") != std::string::npos);
  CHECK(text.find("# stack.lua:3 in layer#2\n") != std::string::npos);
  CHECK(graph::print(graph::parse(text)) == text);
  CHECK(graph::parse(text).nodes()[7]->source.region == "layer#2");
}

TEST_CASE("N01: of calls that compute alike, the first has the code") {
  const graph::Graph graph = stacked_layers(5);
  const std::vector<FusionGroup> parts = cut(graph);
  REQUIRE(parts.size() == 10);
  for (size_t i = 0; i < parts.size(); ++i) {
    CHECK(parts[i].fused == (i % 2 == 0));
    CHECK(parts[i].same_as == (i < 2 ? std::nullopt : std::optional(i % 2)));
    CHECK(parts[i].nodes.size() == (i % 2 == 0 ? 3 : 1));
    CHECK(parts[i].nodes[0]->source.region == fmt::format("layer#{}", i / 2 + 1));
    CHECK(parts[i].outputs.size() == 1);
  }
  CHECK(parts.back().outputs[0] == graph.outputs()[0]);
  const std::string text = text_of(parts);
  CHECK_MESSAGE(text.find("  runs   the code that writes %2\n") != std::string::npos, text);
}

TEST_CASE("N01: results are those of the same graph without regions") {
  for (const char* dtype : {"f32", "f64"}) {
    const graph::Graph graph = stacked_layers(4, dtype), plain = without_regions(graph);
    const at::ScalarType type = dtype == std::string("f32") ? at::kFloat : at::kDouble;
    const at::Tensor w = data({8, 8}, type) * 0.3;
    for (const int64_t rows : {0, 1, 2, 31, 32, 33}) {
      const Tensors inputs = {with_bad_rows({rows, 8}, type), w};
      CHECK(same_bits(results(graph, inputs)[0], results(plain, inputs)[0]));
      const Tensors strided = {with_bad_rows({rows, 16}, type).slice(1, 0, 16, 2), w.t()};
      CHECK(same_bits(results(graph, strided)[0], results(plain, strided)[0]));
    }
  }
}

TEST_CASE("N01: a graph of more nodes than are cut together is compiled where they are in regions") {
  const graph::Graph graph = stacked_layers(600);
  const Tensors inputs = {data({6, 8}), data({8, 8}) * 0.05};  // what differs in a last bit does not grow
  CHECK(largest_cut(graph) == 4);
  const auto executable = find_backend("fused")(graph, inputs);
  CHECK(executable->loops().count() == 1);
  CHECK(find_backend("fused")(without_regions(graph), inputs)->loops().count() == 0);
  CHECK(same(run(*executable, inputs)[0], results(without_regions(graph), inputs)[0], 4));
}

TEST_CASE("N01: what reads one value twice is not taken for what reads two, nor constants for others") {
  const graph::Graph graph = graph::parse(R"(graph alike(%x: "f32[6, 8]", %y: "f32[6, 8]"):
  %0: "f32[6, 8]" = aten::mul.Tensor(%x, %y)  # a.lua:1 in r#1
  %1: "f32[6, 8]" = aten::sigmoid(%0)  # a.lua:1 in r#1
  %2: "f32[6, 8]" = aten::mul.Tensor(%1, %1)  # a.lua:1 in r#2
  %3: "f32[6, 8]" = aten::sigmoid(%2)  # a.lua:1 in r#2
  %4: "f32[6, 8]" = aten::mul.Scalar(%3, 2.0)  # a.lua:2 in s#3
  %5: "f32[6, 8]" = aten::tanh(%4)  # a.lua:2 in s#3
  %6: "f32[6, 8]" = aten::mul.Scalar(%5, 2.5)  # a.lua:2 in s#4
  %7: "f32[6, 8]" = aten::tanh(%6)  # a.lua:2 in s#4
  %8: "f32[6, 8]" = aten::mul.Scalar(%7, 2.0)  # a.lua:3 in s#5
  %9: "f32[6, 8]" = aten::tanh(%8)  # a.lua:3 in s#5
  return %9, %6
)");
  for (const FusionGroup& part : cut(graph)) CHECK(!part.same_as);
  const Tensors inputs = {data({6, 8}), with_bad_rows({6, 8})};
  const Tensors with = results(graph, inputs), without = results(without_regions(graph), inputs);
  for (size_t i = 0; i < with.size(); ++i) CHECK(same(with[i], without[i], 4));
}

TEST_CASE("N01: inner regions are compiled once in all calls around them") {
  std::string text = "graph nested(%x: \"f32[6, 8]\"):\n", x = "%x";
  size_t at = 0;
  for (int outer = 1; outer <= 3; ++outer)
    for (int inner = 1; inner <= 2; ++inner)
      for (const char* call : {"aten::mul.Scalar({}, 2.0)", "aten::tanh({})"}) {
        text += fmt::format("  %{}: \"f32[6, 8]\" = {}  # a.lua:1 in outer#{}/inner#{}\n", at,
                            fmt::format(fmt::runtime(call), x), outer, inner);
        x = fmt::format("%{}", at++);
      }
  const graph::Graph graph = graph::parse(text + "  return " + x + "\n");
  const std::vector<FusionGroup> parts = cut(graph);
  REQUIRE(parts.size() == 6);
  for (size_t i = 0; i < parts.size(); ++i)
    CHECK(parts[i].same_as == (i == 0 ? std::nullopt : std::optional<size_t>(0)));
}

}  // namespace triage::fused
