// Whose Inf became a NaN: only one that took part in it, in the samples that became NaN.
#include "tests/diagnose/script_model.h"

#include <fmt/format.h>
#include <triage/config.h>
#include <triage/provenance.h>

#include <algorithm>
#include <limits>

#include <doctest/doctest.h>
#include <rapidcheck.h>

using namespace triage::testing;
using triage::Producer;
using triage::provenance;
using triage::Provenance;

namespace {

using Rows = std::vector<int64_t>;
using Tensors = std::vector<at::Tensor>;

constexpr float infinite = std::numeric_limits<float>::infinity();

/// One operation of a program: on values by number, the first of which are the inputs.
struct Step {
  std::string op;
  size_t a, b;
};

at::Tensor applied(const Step& step, const Tensors& values) {
  const at::Tensor &a = values[step.a], &b = values[step.b];
  if (step.op == "exp") return a.exp();
  if (step.op == "log") return a.log();
  if (step.op == "neg") return a.neg();
  if (step.op == "relu") return a.relu();
  if (step.op == "reciprocal") return a.reciprocal();
  if (step.op == "softmax") return a.softmax(1);
  if (step.op == "cumsum") return a.cumsum(1);
  if (step.op == "add") return a + b;
  if (step.op == "sub") return a - b;
  if (step.op == "mul") return a * b;
  return a / b;
}

/// Such a program, whose operations keep samples apart, on two inputs.
struct Program {
  std::vector<Step> steps;

  Tensors operator()(const Tensors& inputs) const {
    Tensors values = inputs;
    for (const Step& step : steps) values.push_back(applied(step, values));
    return {values.back()};
  }
  torch::jit::Module module() const {
    std::string text = "\n    def forward(self, v0, v1):\n";
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto& [op, a, b] = steps[i];
      const bool binary = op == "add" || op == "sub" || op == "mul" || op == "div";
      const bool along = op == "softmax" || op == "cumsum";
      text += fmt::format("        v{} = torch.{}(v{}{})\n", i + 2, op, a,
                          binary  ? fmt::format(", v{}", b)
                          : along ? ", 1"
                                  : "");
    }
    return script("Net", text + fmt::format("        return v{}\n", steps.size() + 1));
  }
};

Program draw_program() {
  static const std::vector<std::string> ops{"exp", "log", "neg", "relu", "reciprocal", "add",    "sub",
                                            "mul", "div", "div", "sub",  "mul",        "cumsum", "softmax"};
  Program program;
  const size_t count = *rc::gen::inRange<size_t>(1, 9);
  for (size_t i = 0; i < count; ++i)
    program.steps.push_back(
        {*rc::gen::elementOf(ops), *rc::gen::inRange<size_t>(0, i + 2), *rc::gen::inRange<size_t>(0, i + 2)});
  return program;
}

at::Tensor draw_input(int64_t samples) {
  at::Tensor x = at::empty({samples, 3});
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data_ptr<float>()[i] = *rc::gen::elementOf(std::vector<float>{0, 1, -1, 2, 1000, -1000, 0, 1, infinite});
  return x;
}

/// What happened to one sample, in an order of its own.
std::vector<std::string> story(const Provenance& found, int64_t sample) {
  std::vector<std::string> lines;
  for (const Producer& p : found.producers) {
    if (std::find(p.rows.begin(), p.rows.end(), sample) == p.rows.end()) continue;
    std::string line = fmt::format("{} {} {}:", p.name, to_int(p.code), p.source.line);
    for (const std::string& origin : p.from_inf) line += ' ' + origin;
    lines.push_back(std::move(line));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

/// `run` on each sample alone tells of it what it tells of it in the batch.
template <class Run>
void check_each_alone(const Run& run, const Tensors& inputs) {
  const Provenance all = run(inputs);
  for (int64_t sample = 0; sample < inputs[0].size(0); ++sample) {
    Tensors one;
    for (const at::Tensor& input : inputs) one.push_back(input.narrow(0, sample, 1).clone());
    RC_ASSERT(story(run(one), 0) == story(all, sample));
  }
}

Provenance traced(const std::function<Tensors(const Tensors&)>& fn, const Tensors& inputs) {
  return provenance(triage::graph::trace(fn, inputs), inputs);
}

/// The producers of NaN as "rows from origins".
std::vector<std::string> nans(const Provenance& found) {
  std::vector<std::string> lines;
  for (const Producer& p : found.producers)
    if (p.code == triage::err::nan) {
      std::string line;
      for (const int64_t row : p.rows) line += std::to_string(row) + ' ';
      line += "from";
      for (const std::string& origin : p.from_inf) line += ' ' + origin.substr(0, origin.find(' '));
      lines.push_back(line);
    }
  return lines;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("provenance: where samples are apart, each has the producers and causes that it has alone") {
  CHECK(rc::check([] {
    const Program program = draw_program();
    const int64_t samples = *rc::gen::inRange<int64_t>(2, 5);
    const Tensors inputs{draw_input(samples), draw_input(samples)};
    check_each_alone([&](const Tensors& in) { return traced(program, in); }, inputs);
    const torch::jit::Module module = program.module();
    check_each_alone([&](const Tensors& in) { return provenance(module, {in[0], in[1]}); }, inputs);
  }));
}

TEST_CASE("provenance: an Inf in another sample is no cause of 0 / 0, nor one in another element of the sample") {
  const at::Tensor z = at::tensor({1000.0F, -1000.0F}), w = at::tensor({1.0F, 0.0F});
  const auto quotient = [](const Tensors& in) -> Tensors { return {in[0].exp() / in[1]}; };
  CHECK(nans(traced(quotient, {z, w})) == Lines{"1 from"});
  const torch::jit::Module model = script("Net", R"(
    def forward(self, z, w):
        return torch.exp(z) / w
  )");
  CHECK(nans(provenance(model, {z, w})) == Lines{"1 from"});
  CHECK(nans(traced(quotient, {z.reshape({1, 2}), w.reshape({1, 2})})) == Lines{"0 from"});
  // Two samples that become NaN in one operation, of which one comes from an Inf.
  CHECK(nans(traced(quotient, {at::tensor({1000.0F, -1000.0F, 1.0F}), at::tensor({infinite, 0.0F, 1.0F})})) ==
        Lines{"1 from", "0 from aten::exp input"});
}

TEST_CASE("provenance: an operation that mixes samples has its causes in any of them") {
  const at::Tensor z = at::tensor({1000.0F, 1.0F, 2.0F}).unsqueeze(1);  // exp: Inf in sample 0
  const auto on_exp = [&](const std::function<at::Tensor(const at::Tensor&)>& mix) {
    return nans(traced([&](const Tensors& in) -> Tensors { return {mix(in[0].exp())}; }, {z}));
  };
  CHECK(on_exp([](const at::Tensor& e) { return e.softmax(0); }) == Lines{"0 1 2 from aten::exp"});
  CHECK(on_exp([](const at::Tensor& e) { return e - e.mean(0); }) == Lines{"0 from aten::exp"});
  CHECK(on_exp([](const at::Tensor& e) { return e.cumsum(0) * at::zeros({3, 1}); }) == Lines{"0 1 2 from aten::exp"});
  CHECK(on_exp([](const at::Tensor& e) { return at::zeros({3, 3}).matmul(e); }) == Lines{"0 1 2 from aten::exp"});
  CHECK(on_exp([](const at::Tensor& e) { return e.flip(0) * at::zeros({3, 1}); }) == Lines{"2 from aten::exp"});
  // After samples change places, each Inf is still that of its producer.
  const auto changed = [](const Tensors& in) -> Tensors {
    const at::Tensor both = in[0].exp() + in[1].reciprocal();  // Inf: of exp in sample 0, of reciprocal in sample 2
    return {both.index_select(0, in[3]) * in[2]};
  };
  const at::Tensor w = at::tensor({1.0F, 1.0F, 0.0F}).unsqueeze(1), reversed = at::tensor({2, 1, 0});
  CHECK(nans(traced(changed, {z, w, at::tensor({1.0F, 1.0F, 0.0F}).unsqueeze(1), reversed})) ==
        Lines{"2 from aten::exp"});
  CHECK(nans(traced(changed, {z, w, at::tensor({0.0F, 1.0F, 1.0F}).unsqueeze(1), reversed})) ==
        Lines{"0 from aten::reciprocal"});
  const torch::jit::Module model = script("Net", R"(
    def forward(self, z, w, m):
        both = torch.exp(z) + torch.reciprocal(w)
        return torch.index_select(both, 0, torch.tensor([2, 1, 0])) * m
  )");
  CHECK(nans(provenance(model, {z, w, at::tensor({0.0F, 1.0F, 1.0F}).unsqueeze(1)})) ==
        Lines{"0 from aten::reciprocal"});
}
