#include <ATen/CPUGeneratorImpl.h>
#include <doctest/doctest.h>

#include <cmath>

#include "runtime/graph/passes/clean.h"
#include "tests/graph/build.h"

using namespace triage;
using namespace triage::graph;
using namespace triage::test;

namespace {

/// The operators of a graph in order, without `aten::`.
std::string ops(const Graph& graph) {
  std::string text;
  for (const auto& node : graph.nodes()) text += (text.empty() ? "" : " ") + node->op.operator_name().name.substr(6);
  return text;
}

Graph graph_of_z(const std::string& body, const std::string& outputs) {
  return parse("graph g(%z: \"f32[2, 3]\"):\n" + body + "  return " + outputs + "\n");
}

}  // namespace

TEST_CASE("fold_constants computes what depends on constants only") {
  Graph graph = graph_of_z(R"(
  %c: "f32[3]" = constant [1.0, 2.0, 3.0]
  %0: "f32[3]" = aten::mul.Tensor(%c, 2)
  %1 = aten::add.Tensor(%0, %c)
  %2 = aten::add.Tensor(%z, %1)
  %3 = aten::zeros([3])
  %4 = aten::sub.Tensor(%2, %3)
)",
                           "%4");
  fold_constants(graph);
  verify(graph);
  CHECK(ops(graph) == "add sub");
  CHECK(graph.constants().size() == 2);
  CHECK(at::equal(*graph.constant_of(graph.nodes()[0]->operands[1].value()), at::tensor({3.0f, 6.0f, 9.0f})));
}

TEST_CASE("passes never compute with a variable, nor take one for another") {
  Graph graph = graph_of_z(R"(
  %w: "f32[2]" = constant(variable=True) [1.0, 2.0]
  %same: "f32[2]" = constant(variable=True) [1.0, 2.0]
  %c: "f32[2]" = constant [1.0, 2.0]
  %0 = aten::mul.Tensor(%w, 2)
  %1 = aten::mul.Tensor(%same, 2)
  %2 = aten::mul.Tensor(%c, 2)
  %3 = aten::add.Tensor(%0, %1)
  %4 = aten::add.Tensor(%3, %2)
)",
                           "%4");
  clean(graph);
  CHECK(ops(graph) == "mul mul add add");
  CHECK(graph.constants().size() == 3);
  const Graph twin = graph.clone(), plain = decompose(graph);
  const auto executable = find_backend("eager")(graph, {at::zeros({2, 3})});
  at::Tensor w = graph.constants().at(0).tensor;
  w.fill_(5.0);
  std::vector<at::Tensor> outputs;
  executable->run({at::zeros({2, 3})}, outputs);
  CHECK(at::equal(outputs.at(0), at::tensor({14.0f, 18.0f})));
  for (const Graph* copy : {&twin, &plain}) {
    CHECK(copy->constants().at(0).variable);
    CHECK(copy->is_variable(copy->constants().at(1).value));
    CHECK(copy->constants().at(0).tensor.is_same(w));
  }
}

TEST_CASE("fold_constants keeps flags flags") {
  Graph graph = graph_of_z(R"(
  %c: "f32[2]" = constant [1.0, nan]
  %0 flags = triage::flag_nan(%c, None, location=1, num_slots=16, policy=0, dtype=int64)
)",
                           "%0");
  fold_constants(graph);
  CHECK(graph.nodes().empty());
  CHECK(graph.outputs()[0]->is_flags);
  CHECK(run(graph, {at::zeros({1})})[0].size(0) == 2);
}

TEST_CASE("fold_constants leaves alone what is random, uninitialised, large, an error, or needs a gradient") {
  Graph graph = graph_of_z(R"(
  %c: "f32[3]" = constant [1.0, 2.0, 3.0]
  %w: "f32[3]" = constant(requires_grad=True) [1.0, 2.0, 3.0]
  %0 = aten::rand_like(%c)
  %1 = aten::dropout(%c, 0.5, train=True)
  %2 = aten::empty_like(%c)
  %3 = aten::zeros([2000, 1000])
  %4 = aten::repeat(%c, [1000, 1000])
  %5 = aten::arange(3000000)
  %6 = aten::mul.Tensor(%w, 2)
  %7 = aten::reshape(%c, [5, 7])
)",
                           "%0, %1, %2, %3, %4, %5, %6, %7");
  std::string before = ops(graph);
  fold_constants(graph);
  CHECK(ops(graph) == before);
}

TEST_CASE("fold_constants makes ordinary tensors in whatever mode it runs") {
  Graph graph = graph_of_z("  %c: \"f32[3]\" = constant [1.0, 2.0, 3.0]\n  %0 = aten::neg(%c)\n", "%0");
  {
    c10::InferenceMode inference;
    fold_constants(graph);
  }
  REQUIRE(graph.constants().size() == 1);
  CHECK_FALSE(graph.constants()[0].tensor.is_inference());
}

TEST_CASE("fold_constants does not fold a view of a constant that is returned") {
  Graph graph = graph_of_z("  %c: \"f32[3]\" = constant [1.0, 2.0, 3.0]\n  %0 = aten::view(%c, [3, 1])\n", "%c, %0");
  fold_constants(graph);
  CHECK(ops(graph) == "view");
  auto outputs = run(graph, {at::zeros({2, 3})});
  CHECK_FALSE(outputs[0].is_alias_of(outputs[1]));
}

TEST_CASE("fold_constants leaves alone a call that gives another number of tensors than its graph says") {
  const std::string constant = "  %c: \"f32[3]\" = constant [1.0, 2.0, 3.0]\n";
  for (const char* results : {"%0, %1", "%0, %1, %2, %3"}) {
    Graph graph = graph_of_z(constant + "  " + results + " = aten::split.Tensor(%c, 1)\n", results);
    fold_constants(graph);
    CHECK(ops(graph) == "split");
    CHECK_NOTHROW(verify(graph));
  }
}

TEST_CASE("eliminate_common makes one call of equal ones") {
  Graph graph = graph_of_z(R"(
  %0 = aten::isnan(%z)
  %1 = aten::isnan(%z)
  %2, %3 = aten::max.dim(%z, -1)
  %4, %5 = aten::max.dim(%z, -1)
  %6 = aten::logical_or(%0, %1)
  %7 = aten::add.Tensor(%2, %4)
  %8 = aten::cat([%3, %5])
)",
                           "%6, %7, %8, %1");
  eliminate_common(graph);
  verify(graph);
  CHECK(ops(graph) == "isnan max logical_or add cat");
  CHECK(graph.outputs()[3] == graph.nodes()[0]->results[0]);
}

TEST_CASE("eliminate_common keeps equal calls whose results are both outputs: they must not share memory") {
  Graph graph = graph_of_z("  %0 = aten::neg(%z)\n  %1 = aten::neg(%z)\n", "%0, %1, %1");
  eliminate_common(graph);
  CHECK(ops(graph) == "neg neg");
}

TEST_CASE("eliminate_common keeps equal calls apart that gradients flow through, and merges those around them") {
  Graph graph = graph_of_z(R"(
  %0 = aten::exp(%z)
  %1 = aten::exp(%z)
  %2 = aten::isnan(%z)
  %3 = aten::isnan(%z)
  %4 = aten::add.Tensor(%0, %1)
  %5 = aten::logical_or(%2, %3)
)",
                           "%4, %5");
  const auto first = [&](size_t node) { return graph.nodes()[node]->results[0]; };
  clean(graph, {first(0), first(1), first(4)});
  CHECK(ops(graph) == "exp exp isnan add logical_or");
  clean(graph);
  CHECK(ops(graph) == "exp isnan add logical_or");
}

TEST_CASE("eliminate_common tells constants apart by type and bits") {
  auto left = [](const std::string& a, const std::string& b) {
    Graph graph = graph_of_z("  %0 = aten::add.Scalar(%z, " + a + ")\n  %1 = aten::add.Scalar(%z, " + b + ")\n" +
                                 "  %2 = aten::mul.Tensor(%0, %1)\n",
                             "%2");
    eliminate_common(graph);
    return graph.nodes().size() - 1;
  };
  CHECK(left("1", "1") == 1);
  CHECK(left("1.5", "1.5") == 1);
  CHECK(left("nan", "nan") == 1);
  CHECK(left("nan", "nan(0x7ff8000000000001)") == 2);
  CHECK(left("0.0", "-0.0") == 2);
  CHECK(left("1", "1.0") == 2);
  CHECK(left("1", "True") == 2);
  CHECK(left("1.0", "complex(1.0, 0.0)") == 2);
  CHECK(left("1", "alpha=1, other=1") == 1);
}

TEST_CASE("eliminate_common merges equal constants") {
  Graph graph = graph_of_z(R"(
  %a: "f32[2]" = constant [0.0, nan]
  %b: "f32[2]" = constant [0.0, nan]
  %c: "f32[2]" = constant [-0.0, nan]
  %d: "f32[1, 2]" = constant [[0.0, nan]]
  %0 = aten::cat([%a, %b, %c])
)",
                           "%0, %d");
  eliminate_common(graph);
  verify(graph);
  CHECK(graph.constants().size() == 3);
}

TEST_CASE("eliminate_common keeps random, uninitialised and asserting calls apart") {
  Graph graph = graph_of_z(R"(
  %0 = aten::rand_like(%z)
  %1 = aten::rand_like(%z)
  %2 = aten::dropout(%z, 0.5, train=True)
  %3 = aten::dropout(%z, 0.5, train=True)
  %4 = aten::bernoulli(%z)
  %5 = aten::bernoulli(%z)
  %6 = aten::empty_like(%z)
  %7 = aten::empty_like(%z)
  aten::_assert_async(%z)
  aten::_assert_async(%z)
)",
                           "%0, %1, %2, %3, %4, %5, %6, %7");
  eliminate_common(graph);
  CHECK(graph.nodes().size() == 10);
}

TEST_CASE("eliminate_dead drops what nobody uses, and constants with it") {
  Graph graph = graph_of_z(R"(
  %c: "f32[3]" = constant [1.0, 2.0, 3.0]
  %0 = aten::neg(%z)
  %1 = aten::add.Tensor(%0, %c)
  %2, %3 = aten::max.dim(%z, -1)
)",
                           "%3");
  eliminate_dead(graph);
  verify(graph);
  CHECK(ops(graph) == "max");
  CHECK(graph.constants().empty());
}

TEST_CASE("eliminate_dead keeps random operators, assertions, and what they need") {
  Graph graph = graph_of_z(R"(
  %0 = aten::abs(%z)
  %1 = aten::bernoulli(%0)
  %2 = aten::neg(%z)
  %3 = aten::any(%2)
  aten::_assert_async(%3)
  %4 = aten::tanh(%z)
)",
                           "%z");
  eliminate_dead(graph);
  CHECK(ops(graph) == "abs bernoulli neg any _assert_async");
}

TEST_CASE("passes keep the order of random draws") {
  Graph graph = graph_of_z(R"(
  %0 = aten::rand_like(%z)
  %1 = aten::rand_like(%z)
  %2 = aten::sub.Tensor(%1, %1)
  %3 = aten::rand_like(%z)
)",
                           "%3");
  Graph cleaned = graph.clone();
  clean(cleaned);
  auto draw = [](const Graph& some) {
    at::manual_seed(7);
    return run(some, {at::zeros({2, 3})})[0];
  };
  CHECK(same_bits(draw(graph), draw(cleaned)));
  CHECK(ops(cleaned) == "rand_like rand_like rand_like");
}

TEST_CASE("clean goes on until nothing changes") {
  // Folding makes two equal constants, which makes two equal calls, one of which is dead then.
  Graph graph = graph_of_z(R"(
  %a: "f32[1]" = constant [2.0]
  %b: "f32[1]" = constant [4.0]
  %0 = aten::mul.Tensor(%a, %a)
  %1 = aten::add.Tensor(%z, %0)
  %2 = aten::add.Tensor(%z, %b)
  %3 = aten::sub.Tensor(%1, %2)
  %4 = aten::exp(%2)
)",
                           "%3");
  at::Tensor z = at::randn({2, 3});
  at::Tensor before = run(graph, {z})[0];
  clean(graph);
  CHECK(ops(graph) == "add sub");
  CHECK(graph.constants().size() == 1);
  CHECK(same_bits(run(graph, {z})[0], before));
}
