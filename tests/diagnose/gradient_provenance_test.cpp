// Which operation's derivative made a gradient bad, told from those that passed it on.
#include "tests/diagnose/script_model.h"

#include <torch/torch.h>
#include <triage/config.h>
#include <triage/provenance.h>

#include <limits>

#include <doctest/doctest.h>

using namespace triage::testing;
using triage::gradient_provenance;
using triage::Producer;
using triage::Provenance;

namespace {

using Rows = std::vector<int64_t>;
using Tensors = std::vector<at::Tensor>;

constexpr float no_end = std::numeric_limits<float>::infinity();

Provenance of_gradients(const std::function<Tensors(const Tensors&)>& fn, const Tensors& inputs,
                        const Tensors& gradients = {}) {
  return gradient_provenance(triage::graph::trace(fn, inputs), inputs, gradients);
}

}  // namespace

TEST_CASE("gradient provenance: the derivative whose gradients were finite, and its samples") {
  at::Tensor x = at::ones({5, 3});
  x[1][2] = 0.0;  // the derivative of the square root is 1 / 0
  x[3][0] = 0.0;
  const Provenance found =
      of_gradients([](const Tensors& in) -> Tensors { return {in[0].mul(2.0).sqrt().sum()}; }, {x});
  CHECK(found.samples == 5);
  REQUIRE(found.producers.size() == 1);
  CHECK(found.producers[0].kind == Producer::Kind::operation);
  CHECK(found.producers[0].name == "aten::sqrt");
  CHECK(found.producers[0].code == triage::err::inf);
  CHECK(found.producers[0].rows == Rows{1, 3});
  CHECK(found.operations == 3);
  CHECK(found.passed_on == 1);
  REQUIRE(found.outputs.size() == 1);
  CHECK(found.outputs[0].rows == Rows{1, 3});
}

TEST_CASE("gradient provenance: where() does not keep the NaN of the branch that was not taken") {
  at::Tensor x = at::ones({4, 2});
  x[2][1] = 0.0;
  const auto masked = [](const Tensors& in) -> Tensors {
    return {at::where(in[0] > 0, in[0].sqrt(), at::zeros_like(in[0]))};
  };
  const Provenance found = of_gradients(masked, {x});
  REQUIRE(found.producers.size() == 1);
  CHECK(found.producers[0].name == "aten::sqrt");  // 0 times Inf
  CHECK(found.producers[0].code == triage::err::nan);
  CHECK(found.producers[0].rows == Rows{2});
  CHECK(found.producers[0].from_inf.empty());
}

TEST_CASE("gradient provenance: every size of batch and odd strides, and none bad") {
  const auto fn = [](const Tensors& in) -> Tensors { return {in[0].sqrt()}; };
  for (int64_t samples : {0, 1, 2, 31, 32, 33}) {
    at::Tensor x = at::ones({4, samples}).t();
    CHECK(of_gradients(fn, {x}).producers.empty());
    if (samples == 0) continue;
    x[samples - 1][1] = 0.0;
    const Provenance found = of_gradients(fn, {x});
    REQUIRE(found.producers.size() == 1);
    CHECK(found.producers[0].rows == Rows{samples - 1});
  }
}

TEST_CASE("gradient provenance: a sum of gradients, each of them finite or of another kind") {
  const at::Tensor x = at::full({3, 2}, 2.0f);
  const auto twice = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[0].neg();
    return {y.mul(1.0), y.mul(1.0)};
  };
  at::Tensor large = at::ones({3, 2}), other = at::ones({3, 2});
  large[1].fill_(3e38f);
  other[1].fill_(3e38f);
  Provenance found = of_gradients(twice, {x}, {large, other});
  REQUIRE(found.producers.size() == 1);
  CHECK(found.producers[0].kind == Producer::Kind::sum);
  CHECK(found.producers[0].code == triage::err::inf);
  CHECK(found.producers[0].rows == Rows{1});
  large[1].fill_(no_end);
  other[1].fill_(-no_end);
  found = of_gradients(twice, {x}, {large, other});
  REQUIRE(found.producers.size() == 3);  // both gradients as they came, and what became of them
  CHECK(found.producers[0].kind == Producer::Kind::input);
  CHECK(found.producers[1].kind == Producer::Kind::input);
  CHECK(found.producers[2].kind == Producer::Kind::sum);
  CHECK(found.producers[2].code == triage::err::nan);
  CHECK(found.producers[2].rows == Rows{1});
  CHECK(found.producers[2].from_inf.size() == 2);
}

TEST_CASE("gradient provenance: the samples behind a bad gradient of a weight") {
  const at::Tensor weight = at::ones({3, 2}).requires_grad_(true);
  at::Tensor x = at::ones({6, 2});
  SUBCASE("a bad value that the forward had masked: 0 times NaN") {
    x[4][1] = NAN;
    const auto masked = [&](const Tensors& in) -> Tensors {
      const at::Tensor y = at::linear(in[0], weight);
      return {at::where(y.isnan().any(1, true), at::zeros_like(y), y)};
    };
    const Provenance found = gradient_provenance(triage::graph::trace(masked, {x}), {x});
    REQUIRE(found.producers.size() == 1);
    CHECK(found.producers[0].name == "aten::linear");
    CHECK(found.producers[0].code == triage::err::nan);
    CHECK(found.producers[0].rows == Rows{4});
    REQUIRE(found.outputs.size() == 1);
    CHECK(found.outputs[0].rows == Rows{4});
  }
  SUBCASE("a gradient that overflows in the product with the input") {
    x[2].fill_(1e30f);
    at::Tensor gradient = at::ones({6, 3});
    gradient[2].fill_(1e30f);
    const auto linear = [&](const Tensors& in) -> Tensors { return {at::linear(in[0], weight)}; };
    const Provenance found = gradient_provenance(triage::graph::trace(linear, {x}), {x}, {gradient});
    REQUIRE(found.producers.size() == 1);
    CHECK(found.producers[0].code == triage::err::inf);
    CHECK(found.producers[0].rows == Rows{2});
  }
}

TEST_CASE("gradient provenance: of a TorchScript model, with lines and submodules") {
  torch::jit::Module inner("Inner"), model("Model");
  inner.define("def forward(self, x):\n    return torch.sqrt(x)\n");
  model.register_module("root", inner);
  model.define(
      "def forward(self, x):\n    y = self.root.forward(x)\n    return torch.where(x > 0, y, torch.zeros_like(y))\n");
  at::Tensor x = at::ones({4, 2});
  x[3][0] = 0.0;
  const Provenance found = gradient_provenance(model, {x});
  REQUIRE(found.producers.size() == 1);
  CHECK(found.producers[0].name == "aten::sqrt");
  CHECK(found.producers[0].location == "root");
  CHECK(found.producers[0].source.line == 2);
  CHECK(found.producers[0].rows == Rows{3});
  REQUIRE(found.outputs.size() == 1);
  CHECK(found.outputs[0].name == "x");
  CHECK_FALSE(x.requires_grad());
}

TEST_CASE("gradient provenance: of what was computed, with a trace and without") {
  const at::Tensor weight = at::zeros({4, 2}).requires_grad_(true);
  const at::Tensor x = at::ones({4, 2});
  const auto loss = [&] { return (weight * x).sqrt().mean(); };
  Provenance found = gradient_provenance({loss()}, {}, 4);
  REQUIRE(found.producers.size() == 1);
  CHECK(found.producers[0].name == "SqrtBackward0");
  at::Tensor traced;
  {
    const triage::GradientTrace trace;
    traced = loss();
  }
  found = gradient_provenance({traced});
  REQUIRE(found.producers.size() == 1);
  CHECK(found.producers[0].name == "aten::sqrt");
  CHECK(found.samples == 4);
  CHECK(found.producers[0].rows == Rows{0, 1, 2, 3});
  CHECK_FALSE(weight.grad().defined());
  traced.backward();  // the graph is still there
  CHECK(weight.grad().defined());
}

TEST_CASE("gradient provenance: what cannot be asked") {
  const at::Tensor x = at::ones({3, 2});
  const auto fn = [](const Tensors& in) -> Tensors { return {in[0].sqrt(), in[0] > 0}; };
  const auto graph = triage::graph::trace(fn, {x});
  CHECK_THROWS_AS(gradient_provenance(graph, Tensors{}), triage::InputError);
  CHECK_THROWS_WITH_AS(gradient_provenance(graph, Tensors{x}, Tensors{x}),
                       "gradient_provenance: expected a gradient for each of 2 outputs, or none, got 1.",
                       triage::InputError);
  CHECK_THROWS_WITH_AS(gradient_provenance(graph, Tensors{x}, Tensors{at::ones({2}), at::Tensor()}),
                       "gradient_provenance: the gradient of out0 has the shape [2], and that output the shape [3, 2].",
                       triage::InputError);
  CHECK_THROWS_AS(gradient_provenance(graph, Tensors{x}, Tensors{at::Tensor(), x}), triage::InputError);
  CHECK_THROWS_AS(gradient_provenance({x}), triage::InputError);
  CHECK_THROWS_AS(gradient_provenance({x}, {}, -1), triage::InputError);
}
