// Gradients through the fused backend: both halves of the joint graph as loops, against the interpreter's own.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <runtime/backends/aot/joint.h>
#include <runtime/backends/eager.h>
#include <runtime/backends/fused/fusion_groups.h>
#include <torch/csrc/autograd/autograd.h>
#include <triage/flags.h>
#include <triage/graph.h>

#include <limits>
#include <string>

#include "tests/fused/programs.h"

namespace triage::fused {
namespace {

Tensors requiring_grad(const Tensors& given) {
  Tensors all;
  for (const at::Tensor& tensor : given)
    all.push_back(at::isFloatingType(tensor.scalar_type()) ? tensor.detach().clone().requires_grad_() : tensor);
  return all;
}

/// Of the outputs' sum, each weighted with numbers of its own. Undefined where an input has none.
Tensors gradients(const Executable& executable, const Tensors& given, bool create_graph = false) {
  const Tensors inputs = requiring_grad(given);
  Tensors roots, tangents, ends;
  for (const at::Tensor& output : run(executable, inputs)) {
    if (!output.requires_grad()) continue;
    roots.push_back(output);
    tangents.push_back(
        ((at::arange(output.numel()) * 7).remainder(5) - 2).view(output.sizes()).to(output.scalar_type()));
  }
  for (const at::Tensor& input : inputs)
    if (input.requires_grad()) ends.push_back(input);
  return torch::autograd::grad(roots, ends, tangents, create_graph, create_graph, true);
}

/// How far apart, in units in the last place of the largest gradient of that tensor.
double distance(const at::Tensor& got, const at::Tensor& expected) {
  if (got.numel() == 0 || same_bits(got, expected)) return 0;
  const double epsilon = got.scalar_type() == at::kDouble     ? std::numeric_limits<double>::epsilon()
                         : got.scalar_type() == at::kBFloat16 ? 0x1p-7
                                                              : std::numeric_limits<float>::epsilon();
  const at::Tensor a = got.to(at::kDouble), b = expected.to(at::kDouble);
  return ((a - b).abs().max() / (b.abs().max() * epsilon)).item<double>();
}

/// Captured and differentiated at `n`: the second run is the recorded one, the third the compiled one.
void gradients_agree(const std::string& name, const Program& program, const Tensors& given, double ulps) {
  const Tensors examples = requiring_grad(given);
  const graph::Graph graph = graph::trace(program, examples);
  const auto fused = find_backend("fused")(graph, examples), eager = compile_eager(graph, examples);
  const Tensors expected = gradients(*eager, given);
  for (int round = 0; round < 3; ++round) {
    const Tensors got = gradients(*fused, given);
    REQUIRE(got.size() == expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      REQUIRE_MESSAGE(got[i].defined() == expected[i].defined(), name);
      if (!got[i].defined()) continue;
      CHECK(got[i].sizes() == expected[i].sizes());
      const double far = distance(got[i], expected[i]);
      CHECK_MESSAGE(far <= ulps, name << ", " << given[0].sizes() << ", gradient " << i << ": " << far << " ulp");
    }
  }
}

struct Case {
  const char* name;
  Program program;
  double ulps;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      {"detect_repair", [](const Tensors& in) { return detect_repair({in[0] * in[1]}); }, 0},
      {"zscore_clip", zscore_clip, 32},
      {"softmax_repair", softmax_repair, 8},
      {"arithmetic",
       [](const Tensors& in) {
         const at::Tensor& x = in[0];
         return Tensors{x * in[1] - x / (x * x + 1) + x.abs() + x.clamp(-1, 1) + x.relu() + x.pow(3) + x.neg()};
       },
       0},
      {"transcendental",
       [](const Tensors& in) {
         const at::Tensor& x = in[0];
         return Tensors{x.exp() + x.tanh() + x.sigmoid(), (x.abs() + 0.5).log() + (x.abs() + 0.5).sqrt()};
       },
       16},
      {"piecewise activations",
       [](const Tensors& in) {
         const at::Tensor& x = in[0];
         return Tensors{at::leaky_relu(x, 0.125) * in[1], at::hardtanh(x, -0.5, 1.5) + at::relu6(x * 2),
                        at::hardsigmoid(x * 2) * at::hardswish(x), x.floor() * x};
       },
       0},
      {"smooth activations",
       [](const Tensors& in) {
         const at::Tensor& x = in[0];
         return Tensors{at::silu(x) * in[1], at::gelu(x) + at::elu(x, 0.75), at::gelu(x, "tanh"), at::softplus(x)};
       },
       16},
      {"functions and powers",
       [](const Tensors& in) {
         const at::Tensor &x = in[0], y = x.abs() + 0.5;
         return Tensors{y.exp2() + y.log2() + y.log10() + x.sinh() + x.cosh(), (x * 0.25).asin() + (x * 0.25).acos(),
                        x.atan() * y.pow(2.5), at::pow(2, x) + y.pow(in[1]), at::atan2(x, y)};
       },
       16},
      {"reductions",
       [](const Tensors& in) {
         const at::Tensor& x = in[0];
         return Tensors{x * x.mean(-1, true) + x.sum(-1, true), x.std(-1), x.amax(-1), x.norm(2, -1)};
       },
       32},
      {"log_softmax", [](const Tensors& in) { return Tensors{at::log_softmax(in[0], -1) * in[1]}; }, 16},
      {"layer_norm", [](const Tensors& in) { return Tensors{at::layer_norm(in[0], {9}, in[1]).tanh() * 2}; }, 32},
      {"layers",
       [](const Tensors& in) {
         const at::Tensor y = at::linear(at::linear(in[0], in[2]).relu().exp(), in[3]);
         auto [z, f] = fix(y * 2, flag_nan_and_inf(y, 1), 1);
         return Tensors{z, f};
       },
       32},
  };
  return list;
}

Tensors inputs(int64_t n, at::ScalarType dtype) {
  return {data({n, 9}, dtype), data({9}, dtype), data({6, 9}, dtype) * 0.3, data({4, 6}, dtype)};
}

/// A layer, and its bad rows masked behind it.
Tensors masked_layer(const Tensors& in) {
  const at::Tensor y = at::linear(in[0], in[1], in[2]);
  auto [z, f] = fix(y.relu() * 2, flag_nan_and_inf(y, 1), 1);
  return {z, f};
}

at::Tensor whole(at::IntArrayRef sizes, int64_t salt) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return ((at::arange(count) * 7 + salt).remainder(9) - 4).to(at::kFloat).view(sizes);
}

}  // namespace

TEST_CASE("D04: gradients through fused halves are those of the interpreter, at every batch size") {
  for (const Case& one : cases())
    for (const auto dtype : {at::kFloat, at::kDouble})
      for (const int64_t n : {0, 1, 2, 31, 32, 33}) gradients_agree(one.name, one.program, inputs(n, dtype), one.ulps);
}

TEST_CASE("D04: gradients of bfloat16 through smooth activations are ATen's but for the last bit or two") {
  for (const Case& one : cases())
    if (one.name == std::string("smooth activations"))
      for (const int64_t n : {0, 1, 2, 31, 32, 33}) gradients_agree(one.name, one.program, inputs(n, at::kBFloat16), 2);
}

TEST_CASE("D04: gradients through rows of segments, and through values that are the same along some dims") {
  const Program program = [](const Tensors& in) {
    const at::Tensor &x = in[0], &weight = in[1], &segments = in[2], &positions = in[3];
    const at::Tensor f = flag_nan_and_inf(x, 1), y = err::take_ok_p(f, x) * segments + positions;
    return Tensors{y.softmax(-1) * weight, (y - y.mean(-1, true)).tanh(), y.log_softmax(-1).sum({1, 2}), y.amax(-1)};
  };
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (const int64_t n : {0, 1, 2, 31, 32, 33})
      gradients_agree(
          "segments", program,
          {with_bad_rows({n, 3, 9}, dtype), data({9}, dtype), data({n, 3, 1}, dtype), data({n, 1, 9}, dtype)}, 64);
}

TEST_CASE("D04: what a policy and its gradient compute row by row is one loop each") {
  for (const size_t i : {0, 1, 2, 3, 4}) {
    const Tensors primals = requiring_grad(inputs(5, at::kFloat));
    const graph::Graph graph = graph::trace(cases()[i].program, primals);
    Tensors tangents, outputs;
    compile_eager(graph, primals)->run(primals, outputs);
    for (const at::Tensor& output : outputs)
      tangents.push_back(output.requires_grad() ? at::ones_like(output) : at::Tensor());
    aot::Joint joint = aot::record_joint(graph, primals, tangents);
    aot::mask_rows(joint);
    const aot::Halves halves = aot::partition(joint, true);
    CHECK_MESSAGE(cut(halves.forward).size() == 1, cases()[i].name);
    size_t calls = 0;  // a sum over the batch, for the gradient of a weight, is ATen's
    for (const FusionGroup& part : cut(halves.backward)) calls += part.fused ? 0 : part.graph.nodes().size();
    CHECK_MESSAGE(calls <= 2, cases()[i].name << ": " << calls);
  }
}

TEST_CASE("D04: the second gradient is ATen's, and one output may be left out") {
  const Program program = [](const Tensors& in) { return Tensors{in[0].tanh() * in[1], in[0] * 2}; };
  const Tensors given{data({5, 9}), data({9})};
  const Tensors examples = requiring_grad(given);
  const graph::Graph graph = graph::trace(program, examples);
  const auto fused = find_backend("fused")(graph, examples), eager = compile_eager(graph, examples);
  const auto second = [&](const Executable& executable) {
    const Tensors own = requiring_grad(given);
    const at::Tensor loss = run(executable, own)[0].pow(2).sum();
    const Tensors first = torch::autograd::grad({loss}, {own[0]}, {}, true, true);
    return torch::autograd::grad({first[0].pow(2).sum()}, own)[1];
  };
  for (int round = 0; round < 3; ++round) {
    CHECK(distance(second(*fused), second(*eager)) <= 16);
  }
}

TEST_CASE("D04: without grad mode, and without anything that has a gradient, nothing is recorded") {
  const Program flags = [](const Tensors& in) { return Tensors{flag_nan_and_inf(in[0], 1), in[0] > 0}; };
  const at::Tensor z = with_bad_rows({5, 9});
  const auto fused = compiled(flags, {z.clone().requires_grad_()});
  const Tensors expected = flags({z}), got = run(*fused, {z.clone().requires_grad_()});
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i].equal(expected[i]));
    CHECK_FALSE(got[i].requires_grad());
  }
  const auto graded = compiled(softmax_repair, {z.clone().requires_grad_()});
  CHECK(run(*graded, {z.clone().requires_grad_()})[0].requires_grad());
  const at::NoGradGuard no_grad;
  CHECK_FALSE(run(*graded, {z.clone().requires_grad_()})[0].requires_grad());
}

TEST_CASE("D04: a bad row that is masked behind a layer leaves its weights the gradients of the healthy rows alone") {
  for (const float bad : {nan, inf, -inf}) {
    const Tensors healthy{whole({5, 3}, 4), whole({4, 3}, 1), whole({4}, 2)};
    Tensors given = healthy;
    given[0] = healthy[0].clone();
    given[0][1][0] = bad;
    given[0][3][2] = bad;
    const Tensors examples = requiring_grad(given);
    const auto fused = find_backend("fused")(graph::trace(masked_layer, examples), examples);
    const auto weight_gradients = [](const Executable& executable, const Tensors& in, const at::Tensor& factors) {
      const Tensors own = requiring_grad(in);
      return torch::autograd::grad({(run(executable, own)[0] * factors).sum()}, own);
    };
    const at::Tensor factors = whole({5, 4}, 2), rows = at::tensor({0, 2, 4});
    const Tensors alone{healthy[0].index_select(0, rows), healthy[1], healthy[2]};
    const auto eager = compile_eager(graph::trace(masked_layer, alone), alone);
    const Tensors expected = weight_gradients(*eager, alone, factors.index_select(0, rows));
    for (int round = 0; round < 3; ++round) {
      const Tensors got = weight_gradients(*fused, given, factors);
      CHECK(got[1].equal(expected[1]));
      CHECK(got[2].equal(expected[2]));
      CHECK(got[0].index_select(0, rows).equal(expected[0]));
      CHECK(got[0].index_select(0, at::tensor({1, 3})).eq(0).all().item<bool>());
    }
  }
}

}  // namespace triage::fused
