// Which operation produced a NaN or Inf, told from those that passed it on.
#include "tests/diagnose/script_model.h"

#include <triage/config.h>
#include <triage/flags.h>
#include <triage/provenance.h>

#include <doctest/doctest.h>

using namespace triage::testing;
using triage::Producer;
using triage::provenance;
using triage::Provenance;

namespace {

using Rows = std::vector<int64_t>;

Provenance of_traced(const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& fn,
                     const std::vector<at::Tensor>& inputs) {
  return provenance(triage::graph::trace(fn, inputs), inputs);
}

at::Tensor batch(int64_t samples) { return at::arange(samples * 4).reshape({samples, 4}).to(at::kFloat) + 1.0; }

}  // namespace

TEST_CASE("provenance: the operation whose inputs were fine") {
  at::Tensor x = batch(6);
  x[2][0] = -1.0;
  x[4][3] = 0.0;
  const auto fn = [](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
    return {in[0].log().add(1.0).mul(2.0)};
  };
  const Provenance found = of_traced(fn, {x});
  CHECK(found.samples == 6);
  REQUIRE(found.producers.size() == 2);
  CHECK(found.producers[0].kind == Producer::Kind::operation);
  CHECK(found.producers[0].name == "aten::log");
  CHECK(found.producers[0].code == triage::err::nan);
  CHECK(found.producers[0].rows == Rows{2});
  CHECK(found.producers[1].name == "aten::log");
  CHECK(found.producers[1].code == triage::err::inf);
  CHECK(found.producers[1].rows == Rows{4});
  CHECK(found.operations == 3);
  CHECK(found.passed_on == 2);
  REQUIRE(found.outputs.size() == 1);
  CHECK(found.outputs[0].rows == Rows{2, 4});
}

TEST_CASE("provenance: every size of batch, and none bad") {
  const auto fn = [](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> { return {in[0].log()}; };
  for (int64_t samples : {0, 1, 2, 31, 32, 33}) {
    at::Tensor x = batch(samples).t().contiguous().t();
    CHECK(of_traced(fn, {x}).producers.empty());
    if (samples == 0) continue;
    x[samples - 1][1] = -1.0;
    const Provenance found = of_traced(fn, {x});
    REQUIRE(found.producers.size() == 1);
    CHECK(found.producers[0].rows == Rows{samples - 1});
  }
}

TEST_CASE("provenance: what came in, and what a graph holds") {
  at::Tensor x = batch(4), weight = at::ones({4, 4});  // as many rows as samples, and yet no samples
  x[1][0] = INFINITY;
  weight[2][2] = NAN;
  const auto fn = [weight](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
    return {in[0].exp(), in[0].mm(weight)};
  };
  const Provenance found = of_traced(fn, {x});
  REQUIRE(found.producers.size() == 2);
  CHECK(found.producers[0].kind == Producer::Kind::input);
  CHECK(found.producers[0].code == triage::err::inf);
  CHECK(found.producers[0].rows == Rows{1});
  CHECK(found.producers[1].kind == Producer::Kind::held);
  CHECK(found.producers[1].code == triage::err::nan);
  CHECK(found.producers[1].rows.empty());  // concerns all samples
  CHECK(found.passed_on == 2);
}

TEST_CASE("provenance: a value across samples, and flags in float carriers, which are bits") {
  at::Tensor x = batch(3);
  const auto across = [](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
    return {in[0].add(in[0].mean().sub(100.0).log())};
  };
  const Provenance found = of_traced(across, {x});
  REQUIRE(found.producers.size() == 1);
  CHECK(found.producers[0].name == "aten::log");
  CHECK(found.producers[0].rows.empty());
  CHECK(found.outputs.at(0).rows == Rows{0, 1, 2});
  const auto flagged = [](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
    triage::ErrorConfig config;
    config.flag_dtype = at::kFloat;
    at::Tensor f = triage::err::push(triage::err::new_(in[0], {config}), triage::err::unknown, triage::Location(1023),
                                     {.config = config});
    f = triage::err::push(f, triage::err::unknown, triage::Location(1022), {.config = config});
    return {in[0], f};
  };
  const Provenance bits = of_traced(flagged, {x});
  CHECK(bits.producers.empty());
  CHECK(bits.outputs.empty());
  CHECK_THROWS_AS(provenance(triage::graph::trace(across, {x}), std::vector<at::Tensor>{}), triage::InputError);
}

TEST_CASE("provenance: a NaN made out of an Inf has a producer of its own") {
  for (int64_t samples : {1, 2, 31, 32, 33}) {
    at::Tensor scores = batch(samples), mask = at::zeros({samples, 4}, at::kBool);
    mask[samples - 1] = true;
    const auto fn = [](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
      return {in[0].masked_fill(in[1], -INFINITY).softmax(-1).mul(2.0)};
    };
    const Provenance found = of_traced(fn, {scores, mask});
    REQUIRE(found.producers.size() == 2);
    CHECK(found.producers[0].name == "aten::masked_fill");
    CHECK(found.producers[0].code == triage::err::inf);
    CHECK(found.producers[0].rows == Rows{samples - 1});
    CHECK(found.producers[0].from_inf.empty());
    CHECK(found.producers[1].name.find("softmax") != std::string::npos);
    CHECK(found.producers[1].code == triage::err::nan);
    CHECK(found.producers[1].rows == Rows{samples - 1});
    CHECK(found.producers[1].from_inf == std::vector<std::string>{"aten::masked_fill"});
    CHECK(found.passed_on == 1);
  }
  at::Tensor z = batch(3);
  z[1][2] = INFINITY;
  const auto difference = [](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
    return {in[0].neg().sub(in[0].neg())};
  };
  const Provenance found = of_traced(difference, {z});
  REQUIRE(found.producers.size() == 2);
  CHECK(found.producers[0].kind == Producer::Kind::input);
  CHECK(found.producers[1].name == "aten::sub");
  CHECK(found.producers[1].from_inf == std::vector<std::string>{"input in0"});
}

TEST_CASE("provenance: who makes both kinds, and who makes one where the other was") {
  at::Tensor x = batch(3);
  x[0][0] = -1.0;
  x[0][1] = 0.0;
  const auto log = [](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> { return {in[0].log()}; };
  const Provenance both = of_traced(log, {x});
  REQUIRE(both.producers.size() == 2);
  CHECK(both.producers[0].rows == Rows{0});
  CHECK(both.producers[1].code == triage::err::inf);
  CHECK(both.producers[1].rows == Rows{0});
  at::Tensor y = batch(3);
  y[2][0] = NAN;
  y[2][1] = 0.0;
  const Provenance other = of_traced(log, {y});
  REQUIRE(other.producers.size() == 2);
  CHECK(other.producers[0].kind == Producer::Kind::input);
  CHECK(other.producers[1].name == "aten::log");
  CHECK(other.producers[1].code == triage::err::inf);
}

TEST_CASE("provenance: an operation that mixes samples passes on what any of them has") {
  at::Tensor x = batch(4);
  x[1][0] = NAN;
  const auto mean = [](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
    return {in[0].sub(in[0].mean(at::IntArrayRef{0}))};
  };
  Provenance found = of_traced(mean, {x});
  REQUIRE(found.producers.size() == 1);
  CHECK(found.producers[0].kind == Producer::Kind::input);
  CHECK(found.passed_on == 2);
  const auto along = [](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> { return {in[0].softmax(0)}; };
  found = of_traced(along, {x});
  CHECK(found.producers.size() == 1);
  CHECK(found.outputs.at(0).rows == Rows{0, 1, 2, 3});
  // Passes on what sample 1 has, and makes one of its own in sample 3.
  x[3][2] = -1.0;
  const auto log = [](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> { return {in[0].log()}; };
  found = of_traced(log, {x});
  REQUIRE(found.producers.size() == 2);
  CHECK(found.producers[1].rows == Rows{3});
}

TEST_CASE("provenance of a TorchScript model: a NaN out of an Inf, and samples that are mixed") {
  const torch::jit::Module model = script("Net", R"(
    def forward(self, x):
        y = x.masked_fill(x > 5.0, -float("inf"))
        y = torch.softmax(y, -1)
        return y - y.mean(0)
  )");
  at::Tensor x = batch(3);  // sample 1 holds 5..8, sample 2 9..12
  const Provenance found = provenance(model, {x});
  REQUIRE(found.producers.size() == 2);
  CHECK(found.producers[0].name == "aten::masked_fill");
  CHECK(found.producers[0].rows == Rows{1, 2});
  CHECK(found.producers[1].name == "aten::softmax");
  CHECK(found.producers[1].rows == Rows{2});
  REQUIRE(found.producers[1].from_inf.size() == 1);
  CHECK(found.producers[1].from_inf[0].rfind("aten::masked_fill", 0) == 0);
  CHECK(found.passed_on == 2);
}

TEST_CASE("provenance: an operation that cannot run on other values is asked no more") {
  at::Tensor x = at::eye(2);
  x[0].fill_(NAN);
  x[1].fill_(INFINITY);
  const auto inverse = [](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
    return {at::linalg_inv(in[0])};  // of ones there is none
  };
  const Provenance found = of_traced(inverse, {x});
  CHECK(found.producers.size() >= 2);
  CHECK(found.outputs.at(0).rows == Rows{0, 1});
}

TEST_CASE("provenance: the reduced types") {
  at::Tensor x = batch(3);
  x[1][1] = 7e4;  // beyond float16
  const auto fn = [](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> { return {in[0].to(at::kHalf)}; };
  const Provenance found = of_traced(fn, {x});
  REQUIRE(found.producers.size() == 1);
  CHECK(found.producers[0].code == triage::err::inf);
  CHECK(found.producers[0].rows == Rows{1});
}

TEST_CASE("provenance of a TorchScript model: submodule, operator and line") {
  torch::jit::Module model = network();
  at::Tensor x = at::ones({3, 4});
  const Provenance found = provenance(model, {x});
  const at::Tensor hidden = model.attr("first").toModule().forward({x}).toTensor();
  const bool negative = (hidden < 0).any().item<bool>();
  REQUIRE(found.producers.size() == (negative ? 1 : 0));
  if (negative) {
    CHECK(found.producers[0].name == "aten::log");
    CHECK(found.producers[0].location.empty());  // the model's own code
    CHECK(found.producers[0].rows == Rows{0, 1, 2});
    CHECK(found.producers[0].source.line == 5);
  }
  CHECK(provenance(model, {x, -1.0}).producers.empty());
}

TEST_CASE("provenance of a TorchScript model: loops, writes in place, parameters, functions") {
  const torch::jit::Module inner = script("Inner", R"(
    def forward(self, x):
        y = x - self.offset
        y.log_()
        return y
  )",
                                          {}, {{"offset", at::ones({4})}});
  torch::jit::Module model = script("Net", R"(
    def forward(self, x):
        for i in range(3):
            x = x + 0.0
        return torch.linear(self.block.forward(x), self.weight)
  )",
                                    {{"block", inner}}, {{"weight", at::ones({4, 4})}});
  at::Tensor x = batch(4) + 1.0;
  x[3][2] = 0.5;
  const Provenance found = provenance(model, {x});
  REQUIRE(found.producers.size() == 1);
  CHECK(found.producers[0].name == "aten::log_");
  CHECK(found.producers[0].location == "block");
  CHECK(found.producers[0].rows == Rows{3});
  CHECK(found.passed_on == 1);
  CHECK(found.outputs.at(0).rows == Rows{3});

  model.attr("weight").toTensor().fill_(NAN);
  const Provenance held = provenance(model, {x});
  REQUIRE(held.producers.size() == 2);
  CHECK(held.producers[0].kind == Producer::Kind::held);
  CHECK(held.producers[0].name == "weight");
}
