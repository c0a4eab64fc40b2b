#include <doctest/doctest.h>

#include "tests/graph/build.h"

using namespace triage;
using namespace triage::graph;
using namespace triage::test;

TEST_CASE("trace records the calls that C++ code makes, not those inside of operators") {
  auto fn = [](const Tensors& in) -> Tensors {
    at::Tensor bad = at::isnan(in[0]) | at::isinf(in[0]);
    at::Tensor soft = at::softmax(at::where(bad, at::zeros_like(in[0]), in[0]), -1);
    auto [top, index] = at::max(soft * 2 + 1, -1);
    return {soft, top, index, at::cat({in[0], soft}, 1)};
  };
  Graph graph = trace(fn, {at::randn({4, 3})}, "soft");
  CHECK(graph.name() == "soft");
  CHECK(print(graph).find("_softmax") == std::string::npos);
  CHECK(contains(print(graph), "aten::softmax.int(%in0") == false);
  CHECK(contains(print(graph), "aten::softmax.int(%"));
  for (int64_t rows : {0, 1, 2, 31, 32, 33}) {
    at::Tensor z = at::randn({rows, 3});
    if (rows) z[0][0] = std::numeric_limits<float>::quiet_NaN();
    auto want = fn({z}), got = run(graph, {z});
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) CHECK(same_bits(got[i], want[i]));
  }
  CHECK(print(parse(print(graph))) == print(graph));
}

TEST_CASE("trace: tensors from outside are constants, inputs given twice stay two") {
  at::Tensor weight = at::randn({3}), z = at::randn({2, 3});
  Graph graph = trace([&](const Tensors& in) -> Tensors { return {in[0] * weight - in[1], weight}; }, {z, z});
  CHECK(graph.inputs().size() == 2);
  REQUIRE(graph.constants().size() == 1);
  CHECK(graph.constants()[0].tensor.is_same(weight));
  at::Tensor other = at::randn({2, 3});
  CHECK(same_bits(run(graph, {z, other})[0], z * weight - other));
}

TEST_CASE("trace: lists, optional tensors, dtypes, sizes, wrapped numbers") {
  auto fn = [](const Tensors& in) -> Tensors {
    at::ScalarType widest = at::result_type(in[0], at::zeros({1}, at::kDouble));
    auto parts = at::split(in[0], 2, 1);
    at::Tensor picked =
        at::index(in[0], {c10::optional<at::Tensor>(), c10::optional<at::Tensor>(at::zeros({2}, at::kLong))});
    at::Tensor wide = at::stack({parts[0], parts[1]}, 1).flatten(1).to(widest);
    return {at::sum(wide, {-1}, true, at::kFloat), picked, parts[1], at::layer_norm(in[0], {4}),
            at::full_like(in[0], 2.5)};
  };
  Graph graph = trace(fn, {at::randn({3, 4})});
  CHECK_FALSE(contains(print(graph), "result_type"));
  at::Tensor z = at::randn({5, 4});
  auto want = fn({z}), got = run(graph, {z});
  for (size_t i = 0; i < got.size(); ++i) CHECK(same_bits(got[i], want[i]));
  CHECK(print(parse(print(graph))) == print(graph));
}

TEST_CASE("trace refuses what a graph cannot hold") {
  auto traced = [](const std::function<at::Tensor(const at::Tensor&)>& fn) {
    return [fn] { trace([&](const Tensors& in) -> Tensors { return {fn(in[0])}; }, {at::ones({2})}, "bad"); };
  };
  CHECK_ERROR(GraphError, traced([](const at::Tensor& z) { return at::neg(z).add_(1); })(),
              "cannot trace into graph `bad`: `aten::add_.Scalar` writes to an argument");
  CHECK_ERROR(GraphError, traced([](const at::Tensor& z) { return z * z.sum().item(); })(),
              "`aten::item` reads a value of a tensor");
  CHECK_ERROR(GraphError, traced([](const at::Tensor& z) { return at::equal(z, z) ? z : z + 1; })(),
              "`aten::equal` reads a value");
}

TEST_CASE("an error inside of a traced function comes out as it is, and tracing ends") {
  CHECK_THROWS_AS(trace([](const Tensors& in) -> Tensors { return {at::mm(in[0], in[0])}; }, {at::ones({2, 3})}),
                  c10::Error);
  Graph graph = trace([](const Tensors& in) -> Tensors { return {at::neg(in[0])}; }, {at::ones({2})});
  CHECK(graph.nodes().size() == 1);
}

TEST_CASE("a trace within a trace") {
  Graph inner;
  at::Tensor one = at::ones({1});
  Graph outer = trace(
      [&](const Tensors& in) -> Tensors {
        at::Tensor before = at::neg(in[0]);
        inner = trace([](const Tensors& x) -> Tensors { return {at::exp(at::abs(x[0]))}; }, {one});
        return {at::tanh(before)};
      },
      {at::ones({2})});
  CHECK(inner.nodes().size() == 2);
  CHECK(outer.nodes().size() == 2);
}
