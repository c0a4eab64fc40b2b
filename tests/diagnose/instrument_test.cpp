// Flags through TorchScript models that know nothing of them.
#include "tests/diagnose/script_model.h"

#include <triage/error.h>
#include <triage/flags.h>
#include <triage/instrument.h>

#include <map>
#include <thread>

#include <doctest/doctest.h>

using namespace triage::testing;
using triage::ErrorLocation;
using triage::instrument;
using triage::Instrumented;

namespace {

at::Tensor positive_batch(int64_t samples) { return at::rand({samples, 4}) + 0.5; }

/// A model whose `encoder` divides by its input, so that a 0 makes an Inf there, and whose `head` passes it on.
torch::jit::Module dividing_model() {
  const torch::jit::Module encoder = script("Encoder", R"(
    def forward(self, x):
        return self.scale / x
  )",
                                            {}, {{"scale", at::ones({4})}});
  return script("Net", R"(
    def forward(self, x):
        return self.head.forward(self.encoder.forward(x))
  )",
                {{"encoder", encoder}, {"head", linear(4, 2)}});
}

std::vector<at::Tensor> tensors_of(const c10::IValue& output) {
  std::vector<at::Tensor> found{output.toTupleRef().elements()[0].toTensor()};
  for (const auto& entry : output.toTupleRef().elements()[1].toGenericDict()) found.push_back(entry.value().toTensor());
  return found;
}

std::vector<std::string> paths_of(const Instrumented& model) {
  std::vector<std::string> paths;
  for (const auto& location : model.locations()) paths.push_back(location.path);
  return paths;
}

}  // namespace

TEST_CASE("T01 T16: an instrumented model gives its own outputs, bit for bit, and flags a location a submodule") {
  ErrorLocation::reset();
  torch::jit::Module model = network();
  const Instrumented looked_at = instrument(model);
  const std::vector<std::string> expected = {"root", "first", "first.0", "first.2", "second", "second.0", "second.2"};
  CHECK(paths_of(looked_at) == expected);
  CHECK(looked_at.unseen().empty());
  for (int64_t samples : {0, 1, 2, 31, 32, 33}) {
    CAPTURE(samples);
    at::Tensor x = at::randn({4, samples}).t();  // odd strides
    for (double scale : {1.0, -1.0}) {
      const auto plain = tensors_of(model.forward({x, scale}));
      const Instrumented::Result result = looked_at({x, scale});
      const auto ours = tensors_of(result.output);
      REQUIRE(ours.size() == plain.size());
      for (size_t i = 0; i < ours.size(); ++i) CHECK(same_bits(ours[i], plain[i]));
      CHECK(result.checked);
      CHECK(result.flags.size(0) == samples);
      CHECK(at::equal(triage::err::is_err(result.flags), plain[0].isfinite().all(1).logical_not()));
      CHECK(result.unlooked.empty());
    }
  }
}

TEST_CASE("T01: the first entry of a sample is where its error began") {
  ErrorLocation::reset();
  const Instrumented model = instrument(dividing_model());
  at::Tensor x = positive_batch(5);
  x[3][1] = 0.0;
  x[4][0] = NAN;
  const Instrumented::Result result = model({x});
  CHECK(triage::flags::unpack(result.flags, 0).empty());
  const auto of_inf = triage::flags::unpack(result.flags, 3);
  CHECK(of_inf.at(0).location_name == "encoder");
  CHECK(of_inf.at(0).code_name == "INF");
  CHECK(of_inf.at(1).location_name == "head");
  CHECK(triage::flags::unpack(result.flags, 4).at(0).code_name == "NAN");
  CHECK(triage::flags::summary(result.flags)["root"] == std::map<std::string, int64_t>{{"INF", 1}, {"NAN", 1}});
}

TEST_CASE("T16: two layers of one class are two locations, and control flow is followed") {
  ErrorLocation::reset();
  const torch::jit::Module layer = linear(4, 4);
  torch::jit::Module model = script("Net", R"(
    def forward(self, x, rounds: int):
        for i in range(rounds):
            x = self.inner.forward(x)
            if i == 1:
                x = (-self.outer.forward(x).abs()).sqrt()
        return x
  )",
                                    {{"inner", layer}, {"outer", linear(4, 4)}});
  const Instrumented looked_at = instrument(model, {.track = {.prefix = "loop"}});
  const at::Tensor x = at::randn({3, 4});
  REQUIRE(looked_at.unseen().empty());
  const Instrumented::Result one = looked_at({x, int64_t{1}});
  CHECK_FALSE(triage::has_err(one.flags));
  const Instrumented::Result three = looked_at({x, int64_t{3}});
  CHECK(same_bits(three.output.toTensor(), model.forward({x, int64_t{3}}).toTensor()));
  auto summary = triage::flags::summary(three.flags);
  CHECK(summary.count("loop.outer") == 0);  // the root is taken after it
  CHECK(summary["loop.inner"]["NAN"] == 3);
  CHECK(summary["loop"]["NAN"] == 3);
}

TEST_CASE("T16: a module that stands in two places is one location, by whichever name it is called") {
  ErrorLocation::reset();
  const torch::jit::Module shared = linear(4, 4);
  torch::jit::Module model = script("Net", R"(
    def forward(self, x):
        return self.second.forward(x) * 1.0
  )",
                                    {{"first", shared}, {"second", shared}});
  const Instrumented looked_at = instrument(model);
  CHECK(looked_at.unseen().empty());
  CHECK(triage::flags::summary(looked_at({at::full({2, 4}, NAN)}).flags)["first"]["NAN"] == 2);
}

TEST_CASE("benign: what is expected somewhere is not recorded") {
  ErrorLocation::reset();
  const torch::jit::Module model = dividing_model();
  at::Tensor x = positive_batch(3);
  x[1][2] = 0.0;
  x[2][0] = NAN;
  const auto summary = [&](std::vector<triage::Benign> benign) {
    return triage::flags::summary(instrument(model, {.benign = std::move(benign)})({x}).flags);
  };
  CHECK(summary({})["encoder"].size() == 2);
  CHECK(summary({{.location = "enc*"}}).count("encoder") == 0);
  CHECK(summary({{.location = "enc*"}}).count("head") == 1);
  auto without_inf = summary({{.location = "encoder", .code = triage::err::inf}});
  CHECK(without_inf["encoder"].count("INF") == 0);
  CHECK(without_inf["encoder"]["NAN"] == 1);
  CHECK(summary({{.code = triage::err::nan}, {.code = triage::err::inf}}).empty());
  CHECK(summary({{}}).empty());
}

TEST_CASE("every: only every n-th call looks, the others run the model as it is") {
  ErrorLocation::reset();
  const Instrumented model = instrument(dividing_model(), {.every = 3});
  const at::Tensor x = at::zeros({2, 4});
  for (int call = 0; call < 7; ++call) {
    const Instrumented::Result result = model({x});
    CHECK(result.checked == (call % 3 == 0));
    CHECK(triage::has_err(result.flags) == result.checked);
    CHECK(result.flags.size(0) == 2);
  }
}

TEST_CASE("instrument says what it cannot see") {
  ErrorLocation::reset();
  torch::jit::Module model = script("Net", R"(
    def forward(self, x):
        y = torch.linear(x, self.unseen.weight, self.unseen.bias)
        return self.summing.forward(y)
  )",
                                    {{"unseen", linear(4, 4)},
                                     {"summing", script("Sum", R"(
    def forward(self, x):
        return (x * self.weight).sum()
  )",
                                                        {}, {{"weight", at::ones({4})}})}});
  const Instrumented looked_at = instrument(model);
  CHECK(looked_at.unseen() == std::vector<std::string>{"unseen"});
  const Instrumented::Result result = looked_at({at::full({2, 4}, NAN)});
  CHECK(result.unlooked == std::vector<std::string>{"root", "summing"});
  CHECK_FALSE(triage::has_err(result.flags));
}

TEST_CASE("instrument: gradients and buffers are the model's own") {
  ErrorLocation::reset();
  torch::jit::Module model = network();
  const Instrumented looked_at = instrument(model);
  const at::Tensor x = positive_batch(8).log();
  const auto gradient = [&](const c10::IValue& output) {
    for (const auto& parameter : model.named_parameters()) parameter.value.mutable_grad() = at::Tensor();
    tensors_of(output)[1].nan_to_num(0.0).sum().backward();
    return model.attr("first").toModule().attr("0").toModule().attr("weight").toTensor().grad().clone();
  };
  for (const auto& parameter : model.named_parameters()) parameter.value.requires_grad_();
  const at::Tensor plain = gradient(model.forward({x, -1.0})), ours = gradient(looked_at({x, -1.0}).output);
  CHECK(same_bits(plain, ours));
  CHECK_FALSE(looked_at({x}).flags.requires_grad());
}

TEST_CASE("instrument: threads have flags of their own") {
  ErrorLocation::reset();
  const Instrumented model = instrument(dividing_model());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&model, &wrong, t] {
      for (int call = 0; call < 20; ++call) {
        at::Tensor x = positive_batch(4 + t);
        x[t][0] = 0.0;
        const at::Tensor bad = triage::err::is_err(model({x}).flags);
        wrong[static_cast<size_t>(t)] += bad.size(0) != 4 + t || bad.sum().item<int64_t>() != 1 || !bad[t].item<bool>();
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4));
}

TEST_CASE("instrument: arguments by name, and wrong use") {
  ErrorLocation::reset();
  torch::jit::Module model = network();
  const Instrumented looked_at = instrument(model);
  const at::Tensor x = positive_batch(2);
  CHECK(same_bits(tensors_of(looked_at({}, {{"x", x}, {"scale", -1.0}}).output)[0],
                  tensors_of(model.forward({x, -1.0}))[0]));
  CHECK_THROWS_AS(looked_at({1.0}), triage::InputError);
  CHECK_THROWS(looked_at({x, x, x}));
  CHECK_THROWS_AS(instrument(model, {.every = 0}), triage::InputError);
  CHECK_THROWS_AS(instrument(model, {.method = "backward"}), triage::InputError);
  CHECK_THROWS_AS(instrument(model, {.benign = {{.code = triage::err::overflow}}}), triage::InputError);
}
