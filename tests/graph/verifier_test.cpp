#include <doctest/doctest.h>

#include "tests/graph/build.h"

using namespace triage;
using namespace triage::graph;
using namespace triage::test;

namespace {

struct Small {
  Graph graph{"small"};
  Value* z = graph.add_input("z", InputKind::tensor);
  Value* limit = graph.add_input("limit", InputKind::param);
};

}  // namespace

TEST_CASE("verify: calls must match their schemas") {
  Small small;
  auto& graph = small.graph;
  SUBCASE("too few operands") {
    graph.append(op("aten::add.Tensor"), {small.z, small.z}, 1);
    CHECK_ERROR(GraphError, verify(graph), "%2 = aten::add.Tensor: 2 operands, but the schema has 3 arguments");
  }
  SUBCASE("an integer where a float is wanted") {
    graph.append(op("aten::dropout"), {small.z, integer(1), c10::IValue(true)}, 1);
    CHECK_ERROR(GraphError, verify(graph), "argument `p` expects float, got the Int 1");
  }
  SUBCASE("strides that nobody compares with the memory") {
    append(graph, "aten::_reshape_alias",
           {small.z, c10::IValue(std::vector<int64_t>{1000}), c10::IValue(std::vector<int64_t>{1})});
    CHECK_ERROR(GraphError, verify(graph), "lead out of the memory; use `aten::reshape`");
  }
  SUBCASE("a float where an integer is wanted") {
    append(graph, "aten::softmax.int", {small.z, number(1.0)});
    CHECK_ERROR(GraphError, verify(graph), "argument `dim` expects int, got the Double 1.0");
  }
  SUBCASE("a tensor where no tensor can stand") {
    append(graph, "aten::softmax.int", {small.z, integer(0), small.z});
    CHECK_ERROR(GraphError, verify(graph), "argument `dtype` expects dtype?, got the tensor %z");
  }
  SUBCASE("a dtype that does not exist") {
    append(graph, "aten::softmax.int", {small.z, integer(0), integer(12345)});
    CHECK_ERROR(GraphError, verify(graph), "argument `dtype` expects dtype?, got the Int 12345");
  }
  SUBCASE("None where a value is wanted") {
    append(graph, "aten::softmax.int", {small.z, none()});
    CHECK_ERROR(GraphError, verify(graph), "argument `dim` expects int, got None");
  }
  SUBCASE("a list where one value is wanted") {
    append(graph, "aten::neg", {Operand(std::vector<Operand>{small.z})});
    CHECK_ERROR(GraphError, verify(graph), "argument `self` expects Tensor, got a list");
  }
  SUBCASE("one value where a list is wanted") {
    append(graph, "aten::cat", {small.z});
    CHECK_ERROR(GraphError, verify(graph), "argument `tensors` expects Tensor[], got the tensor %z");
  }
  SUBCASE("None in a list that takes none") {
    append(graph, "aten::cat", {Operand(std::vector<Operand>{small.z, none()})});
    CHECK_ERROR(GraphError, verify(graph), "argument `tensors` expects Tensor[], got a list with None");
  }
  SUBCASE("a float in an integer list") {
    append(graph, "aten::reshape", {small.z, c10::IValue(std::vector<double>{1.5})});
    CHECK_ERROR(GraphError, verify(graph), "argument `shape` expects int[], got a list with the Double 1.5");
  }
  SUBCASE("a tensor that is no value of the graph") {
    append(graph, "aten::neg", {c10::IValue(at::ones({1}))});
    CHECK_ERROR(GraphError, verify(graph), "it must be a constant of the graph");
  }
  SUBCASE("an operator that writes") {
    append(graph, "aten::relu_", {small.z});
    CHECK_ERROR(GraphError, verify(graph), "writes to an argument");
  }
  SUBCASE("a result that is no tensor") {
    append(graph, "aten::item", {small.z});
    CHECK_ERROR(GraphError, verify(graph), "it returns number; values of a graph are tensors");
  }
  SUBCASE("a wrong number of results") {
    append(graph, "aten::max.dim", {small.z, integer(0)}, 1);
    CHECK_ERROR(GraphError, verify(graph), "1 results, but the schema returns 2");
  }
  SUBCASE("the error carries the script line") {
    append(graph, "aten::relu_", {small.z}, 1, {"repair.lua", 7});
    try {
      verify(graph);
      FAIL("verified");
    } catch (const GraphError& error) {
      CHECK(error.source().file == "repair.lua");
      CHECK(error.source().line == 7);
    }
  }
}

TEST_CASE("verify: what may stand in a call") {
  Small small;
  auto& graph = small.graph;
  append(graph, "aten::clamp", {small.z, none(), small.limit});  // a param as a Scalar
  append(graph, "aten::add.Tensor", {small.z, integer(3)});      // a wrapped number
  append(graph, "aten::index.Tensor", {small.z, std::vector<Operand>{none(), small.z}});
  append(graph, "aten::split.Tensor", {small.z, integer(2)}, 3);  // a list, flattened
  append(graph, "aten::reshape", {small.z, std::vector<Operand>{small.limit, integer(-1)}});
  append(graph, "aten::_assert_async", {small.z}, 0);
  append(graph, "aten::native_layer_norm", {small.z, sizes({3}), none(), none(), number(1e-5)}, 3);
  graph.set_outputs({small.z, small.z}, {"a", "b"});
  CHECK_NOTHROW(verify(graph));
}

TEST_CASE("verify: values are defined once, before they are used, under one name") {
  Small small;
  auto& graph = small.graph;
  SUBCASE("use before definition") {
    Value* a = add(graph, "aten::neg", {small.z});
    add(graph, "aten::abs", {a});
    std::swap(graph.nodes()[0], graph.nodes()[1]);
    CHECK_ERROR(GraphError, verify(graph),
                "%3 = aten::abs: argument `self` uses %2, which is not defined before this node");
  }
  SUBCASE("a value of another graph") {
    Graph other;
    Value* stranger = other.add_input("stranger", InputKind::tensor);
    add(graph, "aten::cat", {Operand(std::vector<Operand>{small.z, stranger})});
    CHECK_ERROR(GraphError, verify(graph), "uses %stranger, which is not defined");
  }
  SUBCASE("two inputs of one name") {
    graph.add_input("z", InputKind::tensor);
    CHECK_ERROR(GraphError, verify(graph), "two inputs or constants are named %z");
  }
  SUBCASE("two results of one number") {
    Value* a = add(graph, "aten::neg", {small.z});
    graph.set_id(add(graph, "aten::abs", {a}), a->id);
    CHECK_ERROR(GraphError, verify(graph), "two values are numbered %2");
  }
  SUBCASE("a constant without a tensor") {
    graph.add_constant(at::Tensor());
    CHECK_ERROR(GraphError, verify(graph), "constant %c0 holds no tensor");
  }
  SUBCASE("a result that names another producer") {
    Node* first = append(graph, "aten::neg", {small.z});
    Node* second = append(graph, "aten::abs", {small.z});
    graph.edit(second->results[0]).producer = first;
    CHECK_ERROR(GraphError, verify(graph), "its result %3 names another producer");
  }
}

TEST_CASE("verify: outputs") {
  Small small;
  auto& graph = small.graph;
  SUBCASE("undefined") {
    Graph other;
    graph.set_outputs({other.add_input("stranger", InputKind::tensor)});
    CHECK_ERROR(GraphError, verify(graph), "output %stranger is defined nowhere");
  }
  SUBCASE("null") {
    graph.set_outputs({nullptr});
    CHECK_ERROR(GraphError, verify(graph), "an output is null");
  }
  SUBCASE("names for some only") {
    graph.set_outputs({small.z, small.z}, {"a"});
    CHECK_ERROR(GraphError, verify(graph), "1 output names for 2 outputs");
  }
  SUBCASE("a name twice") {
    graph.set_outputs({small.z, small.z}, {"a", "a"});
    CHECK_ERROR(GraphError, verify(graph), "two outputs are named `a`");
  }
}
