#include <doctest/doctest.h>

#include "tests/graph/build.h"

using namespace triage;
using namespace triage::graph;
using namespace triage::test;

TEST_CASE("a graph is built value by value") {
  Graph graph("repair");
  Value* z = graph.add_input("z", InputKind::tensor, meta({32, 4}));
  Value* limit = graph.add_input("limit", InputKind::param);
  Value* scale = graph.add_constant(at::ones({4}), "scale");
  Node* node = append(graph, "aten::max.dim", {z, integer(-1)}, 2, {"repair.lua", 3});
  graph.set_outputs({node->results[0]}, {"z"});

  CHECK(graph.name() == "repair");
  CHECK(graph.inputs().size() == 2);
  CHECK(graph.inputs()[1].kind == InputKind::param);
  CHECK(z->producer == nullptr);
  CHECK(node->results[1]->producer == node);
  CHECK(node->source.line == 3);
  CHECK(graph.constant_of(scale)->sizes() == at::IntArrayRef({4}));
  CHECK(scale->meta->sizes == std::vector<int64_t>{4});
  CHECK(graph.constant_of(z) == nullptr);
  CHECK(graph.constant_of(node->results[0]) == nullptr);
  CHECK(limit->id != z->id);
  verify(graph);
}

TEST_CASE("names of constants are made unique, inputs are named when they come without a name") {
  Graph graph;
  CHECK(graph.add_input("", InputKind::tensor)->name == "in0");
  graph.add_input("c0", InputKind::tensor);
  CHECK(graph.add_constant(at::ones({1}))->name == "c1");
  CHECK(graph.add_constant(at::ones({1}), "w")->name == "w");
  CHECK(graph.add_constant(at::ones({1}), "w")->name == "w_3");
  verify(graph);
}

TEST_CASE("flags are known by the operators that make them") {
  Graph graph;
  Value* z = graph.add_input("z", InputKind::tensor);
  Node* flag = graph.append(op("triage::flag_nan"), {z, none(), integer(1), integer(16), integer(0), integer(4)}, 1);
  Node* plain = append(graph, "aten::isnan", {z});
  CHECK(flag->results[0]->is_flags);
  CHECK_FALSE(plain->results[0]->is_flags);
  CHECK(returns_flags(op("triage::fix"), 1));
  CHECK_FALSE(returns_flags(op("triage::fix"), 0));
  CHECK_FALSE(returns_flags(op("triage::is_ok"), 0));
}

TEST_CASE("a clone shares nothing but the memory of constants") {
  Graph graph("g");
  Value* z = graph.add_input("z", InputKind::tensor, meta({2}));
  Value* c = graph.add_constant(at::full({2}, 3.0));
  Value* sum = add(graph, "aten::add.Tensor", {z, c});
  Value* all = add(graph, "aten::cat", {Operand(std::vector<Operand>{sum, z})});
  graph.set_outputs({all}, {"y"});
  Graph copy = graph.clone();
  CHECK(print(copy) == print(graph));
  CHECK(copy.constants()[0].tensor.is_same(graph.constants()[0].tensor));
  add(copy, "aten::neg", {copy.outputs()[0]});
  CHECK(copy.nodes().size() == graph.nodes().size() + 1);
  CHECK(copy.nodes().back()->results[0]->id > all->id);
  for (const auto& node : copy.nodes())
    for (const auto& operand : node->operands) CHECK(operand.value() != z);
  Graph moved = std::move(copy);
  verify(moved);
}

TEST_CASE("unused constants can be dropped") {
  Graph graph;
  Value* z = graph.add_input("z", InputKind::tensor);
  Value* used = graph.add_constant(at::ones({1}));
  Value* listed = graph.add_constant(at::ones({1}));
  graph.add_constant(at::ones({1}));
  Value* returned = graph.add_constant(at::ones({1}));
  Value* sum = add(graph, "aten::add.Tensor", {z, used});
  graph.set_outputs({add(graph, "aten::cat", {Operand(std::vector<Operand>{sum, listed})}), returned});
  graph.drop_unused_constants();
  CHECK(graph.constants().size() == 3);
  verify(graph);
}

TEST_CASE("what schemas tell of operators") {
  CHECK(is_random(op("aten::bernoulli")));
  CHECK(is_random(op("aten::dropout")));
  CHECK(is_random(op("aten::randn_like")));
  CHECK(is_random(op("aten::rrelu")));
  CHECK(is_random(op("aten::multinomial")));
  CHECK_FALSE(is_random(op("aten::add.Tensor")));
  CHECK_FALSE(is_random(op("aten::zeros_like")));
  CHECK(writes(op("aten::add_.Tensor")));
  CHECK(writes(op("aten::add.out")));
  CHECK(writes(op("aten::_foreach_add_.Scalar")));
  CHECK_FALSE(writes(op("aten::view")));
  CHECK_FALSE(writes(op("aten::split.Tensor")));
  CHECK(is_effect(op("aten::_assert_async")));
  CHECK_FALSE(is_effect(op("aten::add.Tensor")));
}
