// What graphs of several parts take: at most half of their inputs and outputs again, whatever lies between.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/flags.h>
#include <triage/graph.h>

#include "tests/fused/programs.h"
#include "tests/memory_use.h"

namespace triage::fused {
namespace {

size_t bytes_of(const Tensors& tensors) {
  size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

struct ShownGraph {
  std::string name;
  std::function<Tensors()> inputs;
  Program program;
};

const std::vector<ShownGraph>& graphs() {
  static const auto one = [] { return Tensors{data({256, 96})}; };
  static const auto deep = [] { return Tensors{data({64, 24, 16})}; };
  static const std::vector<ShownGraph> list = {
      {"cat, relu", one,
       [](const Tensors& in) {
         return Tensors{at::cat({in[0] * 2, in[0] + 1}, -1).relu()};
       }},
      {"cat over rows, relu", one,
       [](const Tensors& in) {
         return Tensors{at::cat({in[0] * 2, in[0] + 1}, 0).relu()};
       }},
      {"cat of three dims", deep,
       [](const Tensors& in) {
         return Tensors{at::cat({in[0] * 2, in[0] + 1}, -1).relu()};
       }},
      {"cat in the middle", deep,
       [](const Tensors& in) {
         return Tensors{at::cat({in[0] * 2, in[0] + 1}, 1).relu()};
       }},
      {"cat, softmax", one,
       [](const Tensors& in) {
         return Tensors{at::cat({in[0] * 2, in[0] + 1}, -1).relu().softmax(-1)};
       }},
      {"cat of reductions", one,
       [](const Tensors& in) {
         return Tensors{at::cat({in[0] - in[0].mean(-1, true), in[0].softmax(-1)}, -1).relu()};
       }},
      {"cat with input", one,
       [](const Tensors& in) {
         return Tensors{at::cat({in[0] * 2 + 1, in[0]}, -1).relu() * 3};
       }},
      {"two cats", one,
       [](const Tensors& in) {
         const at::Tensor a = at::cat({in[0] * 2, in[0] + 1}, -1).relu();
         return Tensors{at::cat({a * 3, a - 1}, -1).abs()};
       }},
      {"layers",
       [] {
         return Tensors{data({256, 96}), data({96, 96}), data({96, 96}), data({96, 96})};
       },
       [](const Tensors& in) {
         at::Tensor h = in[0];
         for (size_t i = 1; i < 4; ++i) h = (at::mm(h, in[i]) * 0.1).relu();
         return Tensors{h};
       }},
      {"wide layer, one function",
       [] {
         return Tensors{data({256, 16}), data({16, 384})};
       },
       [](const Tensors& in) { return Tensors{at::mm(in[0], in[1]).relu()}; }},
      {"wide layer",
       [] {
         return Tensors{data({256, 16}), data({16, 384})};
       },
       [](const Tensors& in) { return Tensors{(at::mm(in[0], in[1]) * 0.1).tanh()}; }},
      {"normed layers",
       [] {
         return Tensors{data({256, 96}), data({96, 96}), data({96, 96})};
       },
       [](const Tensors& in) {
         at::Tensor h = at::linear(in[0], in[1]);
         h = (h - h.mean(-1, true)) / (h.std(-1, true, true) + 1e-5);
         return Tensors{(at::linear(h, in[2]) + in[0]).softmax(-1)};
       }},
      {"chunks", one,
       [](const Tensors& in) {
         const auto parts = in[0].chunk(2, -1);
         return Tensors{(parts[0] * 2 + parts[1].sigmoid()).relu()};
       }},
      {"chunks of three dims", deep,
       [](const Tensors& in) {
         const auto parts = in[0].chunk(2, -1);
         return Tensors{(parts[0] * 2 + parts[1].sigmoid()).relu()};
       }},
      {"split and joined", one,
       [](const Tensors& in) {
         const auto parts = in[0].split(32, -1);
         return Tensors{at::cat({parts[0].relu() * 2, parts[2] - 1, parts[1].abs() + 1}, -1)};
       }},
      {"gather",
       [] {
         return Tensors{data({256, 96}), at::randint(0, 96, {256, 96})};
       },
       [](const Tensors& in) { return Tensors{at::gather(in[0] * 2 + 1, 1, in[1]).relu() - 1}; }},
      {"index_select",
       [] {
         return Tensors{data({256, 96}), at::randint(0, 96, {192})};
       },
       [](const Tensors& in) { return Tensors{at::index_select(in[0] * 2 + 1, 1, in[1]).relu() - 1}; }},
      {"rows selected",
       [] {
         return Tensors{data({256, 96}), at::randint(0, 256, {512})};
       },
       [](const Tensors& in) { return Tensors{at::index_select(in[0] * 2 + 1, 0, in[1]).relu() - 1}; }},
      {"cumsum", one, [](const Tensors& in) { return Tensors{(in[0] * 2 + 1).cumsum(1).relu() - 1}; }},
      {"repeat", one,
       [](const Tensors& in) {
         return Tensors{(in[0] * 2 + 1).repeat({1, 2}).relu() - 1};
       }},
      {"turned", one, [](const Tensors& in) { return Tensors{(in[0] * 2 + 1).t().contiguous().relu() - 1}; }},
      {"flipped", one, [](const Tensors& in) { return Tensors{(in[0] * 2 + 1).flip({1}).relu() - 1}; }},
      {"rolled", one, [](const Tensors& in) { return Tensors{(in[0] * 2 + 1).roll({1}, {1}).relu() - 1}; }},
      {"stack", one,
       [](const Tensors& in) {
         return Tensors{at::stack({in[0] * 2, in[0] + 1}, 1).relu()};
       }},
      {"padded", one,
       [](const Tensors& in) {
         return Tensors{at::constant_pad_nd(in[0] * 2 + 1, {4, 4}).relu() - 1};
       }},
      {"attention",
       [] {
         return Tensors{data({8, 64, 64}), data({8, 64, 64}), data({8, 64, 64})};
       },
       [](const Tensors& in) {
         const at::Tensor scores = (at::bmm(in[0] * 0.125, in[1].transpose(1, 2)) + 0.5).softmax(-1);
         return Tensors{at::bmm(scores, in[2]).relu() * 2};
       }},
      {"repaired layers",
       [] {
         return Tensors{with_bad_rows({256, 96}), data({96, 96}), data({96, 96})};
       },
       [](const Tensors& in) {
         auto [z, f] = fix(in[0], flag_nan_and_inf(in[0], 1), 1);
         const at::Tensor h = at::mm(z.tanh(), in[1]).relu() * 2;
         return Tensors{at::mm(h, in[2]).softmax(-1), flag_nan_and_inf(h, 2, f)};
       }},
  };
  return list;
}

/// Inputs, what is kept for the next call and what the call takes meanwhile, against inputs and outputs.
double peak_of(const ShownGraph& one) {
  test::CountedTensorMemory memory;
  const size_t before = memory.now();
  const Tensors inputs = one.inputs();
  const auto executable = compiled(one.program, inputs);
  for (int call = 0; call < 3; ++call) run(*executable, inputs);
  memory.begin();
  const Tensors outputs = run(*executable, inputs);
  constexpr size_t few = 16 << 10;  // numbers, and blocks in which ATen turns matrices
  return static_cast<double>(memory.highest() - before - few) /
         static_cast<double>(bytes_of(inputs) + bytes_of(outputs));
}

}  // namespace

TEST_CASE("memory: graphs of several parts give what their operators give, call after call") {
  for (const ShownGraph& one : graphs()) {
    const Tensors inputs = one.inputs(), expected = one.program(inputs);
    Tensors before;
    for (const at::Tensor& input : inputs) before.push_back(input.clone());
    const auto fused = compiled(one.program, inputs);
    for (int call = 0; call < 3; ++call) {
      const Tensors got = run(*fused, inputs), again = run(*fused, inputs);
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK_MESSAGE(same(got[i], expected[i]), one.name << ", call " << call);
        CHECK_MESSAGE(same_bits(got[i], again[i]), one.name << ", call " << call);
      }
    }
    for (size_t i = 0; i < inputs.size(); ++i) CHECK(same_bits(inputs[i], before[i]));
  }
}

TEST_CASE("memory: graphs of several parts take at most half of inputs and outputs again") {
  for (const ShownGraph& one : graphs()) {
    const double peak = peak_of(one);
    CHECK_MESSAGE(peak <= 1.5, one.name << ": " << peak);
  }
}

TEST_CASE("a call between loops whose result nobody reads gives nothing, also where it could write to its operand") {
  const Program program = [](const Tensors& in) {
    at::sin(in[0].cumsum(-1));
    return Tensors{(in[0] * 2 + 1).cumsum(-1) * 3};
  };
  const Tensors inputs{data({33, 16})};
  const auto fused = compiled(program, inputs);
  for (int call = 0; call < 2; ++call) CHECK(same_bits(run(*fused, inputs)[0], program(inputs)[0]));
}

}  // namespace triage::fused
