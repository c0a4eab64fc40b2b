// Joint forward and backward graphs: their print, their halves, and the dead-row pass.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/version.h>
#include <triage/backend.h>
#include <triage/error.h>

#include <atomic>
#include <limits>
#include <thread>

#include "build.h"
#include "runtime/backends/aot/joint.h"

namespace triage::aot {
namespace {

using test::same_bits;
using test::Tensors;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float inf = std::numeric_limits<float>::infinity();

/// A function of samples %x and weights %w, %v that ends in a selection over rows: %keep says which it leaves, others
/// are 0.
struct Model {
  std::string name;
  std::vector<int64_t> x;                     // without the samples
  std::vector<std::vector<int64_t>> weights;  // %w, %v
  std::string body;                           // computes %out
};

const std::string keep = "  %out = aten::where.self(%keep, %9, %zero)\n";

/// A layer, a call on what it gives (%1), and what makes rows of that (%8) again.
Model after_layer(const std::string& name, const std::string& call, const std::string& rows = "") {
  const std::string body =
      "  %1 = aten::linear(%x, %w, %v)\n  %" + std::string(rows.empty() ? "9" : "8") + " = " + call;
  return {name, {3}, {{4, 3}, {4}}, body + "\n" + rows + keep};
}

const std::vector<Model>& models() {
  static const std::vector<Model> list = {
      {"linear", {3}, {{4, 3}, {4}}, "  %9 = aten::linear(%x, %w, %v)\n" + keep},
      {"masked_fill",
       {3},
       {{3, 4}, {4}},
       "  %1 = aten::addmm(%v, %x, %w)\n  %2 = aten::logical_not(%keep)\n"
       "  %out = aten::masked_fill.Scalar(%1, %2, 0)\n"},
      {"samples as columns", {3}, {{4, 3}}, "  %1 = aten::t(%x)\n  %2 = aten::mm(%w, %1)\n  %9 = aten::t(%2)\n" + keep},
      {"linear in 3-D", {2, 3}, {{4, 3}, {4}}, "  %9 = aten::linear(%x, %w, %v)\n" + keep},
      {"matmul in 3-D", {2, 3}, {{3, 4}}, "  %9 = aten::matmul(%x, %w)\n" + keep},
      {"two layers",
       {3},
       {{4, 3}, {2, 4}},
       "  %1 = aten::linear(%x, %w)\n  %2 = aten::relu(%1)\n  %9 = aten::linear(%2, %v)\n" + keep},
      {"products",
       {3},
       {{3}, {3}},
       "  %1 = aten::mul.Tensor(%x, %w)\n  %2 = aten::mul.Tensor(%1, %1)\n"
       "  %9 = aten::sub.Tensor(%2, %v)\n" +
           keep},
      {"convolution", {2, 3, 3}, {{4, 2, 3, 3}, {4}}, "  %9 = aten::conv2d(%x, %w, %v, padding=[1, 1])\n" + keep},
      {"gelu between layers",
       {3},
       {{4, 3}, {2, 4}},
       "  %1 = aten::linear(%x, %w)\n  %2 = aten::gelu(%1)\n  %9 = aten::linear(%2, %v)\n" + keep},
      {"layer norm", {4}, {{4}, {4}}, "  %9 = aten::layer_norm(%x, [4], %w, %v)\n" + keep},
      {"softmax of a layer", {3}, {{4, 3}}, "  %1 = aten::linear(%x, %w)\n  %9 = aten::softmax.int(%1, -1)\n" + keep},
      {"log of a layer",
       {3},
       {{4, 3}},
       "  %1 = aten::linear(%x, %w)\n  %2 = aten::abs(%1)\n  %3 = aten::add.Scalar(%2, 1)\n"
       "  %9 = aten::log(%3)\n" +
           keep},
      after_layer("slice", "aten::slice.Tensor(%1, 1, 1, 3, 1)"),
      after_layer("flip", "aten::flip(%1, [1])"),
      after_layer("roll", "aten::roll(%1, [1], [1])"),
      after_layer("padding", "aten::constant_pad_nd(%1, [1, 2], 0)"),
      after_layer("padding that cuts", "aten::constant_pad_nd(%1, [-1, 2], 0)"),
      after_layer("cumsum", "aten::cumsum(%1, -1)"),
      after_layer("glu", "aten::glu(%1, 1)"),
      after_layer("triangle", "aten::tril(%1, 1)"),
      after_layer("cat", "aten::cat([%1, %1], 1)"),
      after_layer("narrow", "aten::narrow(%1, 1, 0, 2)"),
      after_layer("select", "aten::select.int(%1, 1, 2)", "  %9 = aten::unsqueeze(%8, 1)\n"),
      after_layer("stack", "aten::stack([%1, %1], 0)", "  %9 = aten::sum.dim_IntList(%8, [0])\n"),
      after_layer("stack of features", "aten::stack([%1, %1], -1)", "  %9 = aten::sum.dim_IntList(%8, [2])\n"),
      after_layer("rows of two batches", "aten::cat([%1, %1], 0)",
                  "  %7 = aten::unflatten.int(%8, 0, [2, -1])\n  %9 = aten::select.int(%7, 0, 1)\n"),
      after_layer("rows turned twice", "aten::flip(%1, [0])", "  %7 = aten::relu(%8)\n  %9 = aten::flip(%7, [0])\n"),
  };
  return list;
}

std::string shape(const std::vector<int64_t>& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

graph::Graph graph_of_model(const Model& model, int64_t samples) {
  std::vector<int64_t> x = model.x, rows(model.x.size() + 1, 1);
  x.insert(x.begin(), samples);
  rows[0] = samples;
  std::string text = "graph model(%x: \"f32" + shape(x) + "\"";
  for (size_t i = 0; i < model.weights.size(); ++i)
    text += std::string(", %") + "wv"[i] + ": \"f32" + shape(model.weights[i]) + "\"";
  text += ", %keep: \"b8" + shape(rows) + "\"):\n  %zero: \"f32[]\" = constant 0.0\n" + model.body + "  return %out\n";
  for (size_t at; (at = text.find("%out")) != std::string::npos;) text.replace(at, 4, "%99");
  return graph::parse(text);
}

/// Whole numbers: sums of their products are exact, in whatever order.
at::Tensor whole(const std::vector<int64_t>& sizes, int64_t salt) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return ((at::arange(count) * 7 + salt).remainder(9) - 4).to(at::kFloat).view(sizes);
}

/// %x, weights, %keep. The samples in `dead` hold `value`.
Tensors primals_of(const Model& model, int64_t samples, const std::vector<int64_t>& dead, float value, bool exact) {
  std::vector<int64_t> x = model.x, rows(model.x.size() + 1, 1);
  x.insert(x.begin(), samples);
  rows[0] = samples;
  Tensors primals = {whole(x, 1)};
  for (size_t i = 0; i < model.weights.size(); ++i)
    primals.push_back(whole(model.weights[i], 3 + static_cast<int64_t>(i)));
  at::Tensor kept = at::ones(rows, at::kBool);
  if (!exact)
    for (auto& primal : primals) primal = (primal * 0.37).sin();
  for (const int64_t row : dead) {
    primals[0].select(0, row).fill_(value);
    kept.select(0, row).fill_(false);
  }
  for (auto& primal : primals) primal.requires_grad_();
  primals.push_back(kept);
  return primals;
}

/// A tangent for the one output: no two rows alike.
Tensors tangents_of(const graph::Graph& graph, const Tensors& primals) {
  return {whole(test::run(graph, primals).at(0).sizes().vec(), 5)};
}

Tensors eager_gradients(const graph::Graph& graph, const Tensors& primals) {
  Tensors ends(primals.begin(), primals.end() - 1);
  return torch::autograd::grad(test::run(graph, primals), ends, tangents_of(graph, primals));
}

Tensors joint_gradients(const graph::Graph& graph, const Tensors& primals, bool masked = true) {
  const Tensors tangents = tangents_of(graph, primals);
  Joint joint = record_joint(graph, primals, tangents);
  if (masked) mask_rows(joint);
  const at::NoGradGuard no_grad;
  const Halves halves = partition(joint, /*folds=*/true);
  Tensors given, made = test::run(halves.forward, primals);
  for (const size_t index : halves.saved_primals) given.push_back(primals[index]);
  given.insert(given.end(), made.begin() + static_cast<std::ptrdiff_t>(joint.num_outputs), made.end());
  given.insert(given.end(), tangents.begin(), tangents.end());
  return test::run(halves.backward, given);
}

}  // namespace

TEST_CASE("D04: a joint graph before and after the dead-row pass, and its halves") {
  const Model& model = models()[0];
  const graph::Graph graph = graph_of_model(model, 5);
  const Tensors primals = primals_of(model, 5, {}, 0, true);
  Joint joint = record_joint(graph, primals, tangents_of(graph, primals));
  CHECK(joint.num_primals == 4);
  CHECK(joint.has_gradient == std::vector<bool>{true, true, true, false});
  const std::string before = graph::print(joint.graph);
  CHECK(graph::print(graph::parse(before)) == before);
  mask_rows(joint);
  const std::string after = graph::print(joint.graph);
  const Halves halves = partition(joint, /*folds=*/true);
  CHECK(halves.saved_primals == std::vector<size_t>{0, 1, 3});
  CHECK(halves.num_saved == 0);
  CHECK(before.find("masked_fill") == std::string::npos);
  CHECK(after.find("aten::masked_fill.Scalar(%x, ") != std::string::npos);
#if TORCH_VERSION_MAJOR == 1  // what ATen's backward formulas call differs from version to version
  CHECK(before == R"(graph model(
    %x: "f32[5, 3]",
    %w: "f32[4, 3]",
    %v: "f32[4]",
    %keep: "b8[5, 1]",
    %grad_out0: "f32[5, 4]"):
  %c0: "f32[]" = constant 0.0
  %6: "f32[3, 4]" = aten::t(%w)
  %7: "f32[5, 4]" = aten::addmm(%v, %x, %6)
  %8: "f32[5, 4]" = aten::where.self(%keep, %7, %c0)
  %9: "f32[]" = aten::scalar_tensor(0, dtype=float32, layout=strided, device="cpu")
  %10: "f32[5, 4]" = aten::where.self(%keep, %grad_out0, %9)
  %11: "f32[4, 3]" = aten::t(%6)
  %12: "f32[5, 3]" = aten::mm(%10, %11)
  %13: "f32[4, 5]" = aten::t(%10)
  %14: "f32[4, 3]" = aten::mm(%13, %x)
  %15: "f32[3, 4]" = aten::t(%14)
  %16: "f32[1, 4]" = aten::sum.dim_IntList(%10, [0], keepdim=True)
  %17: "f32[4]" = aten::view(%16, [4])
  %18: "f32[4, 3]" = aten::t(%15)
  return out0=%8, grad_x=%12, grad_w=%18, grad_v=%17
)");
  CHECK(after == R"(graph model(
    %x: "f32[5, 3]",
    %w: "f32[4, 3]",
    %v: "f32[4]",
    %keep: "b8[5, 1]",
    %grad_out0: "f32[5, 4]"):
  %c0: "f32[]" = constant 0.0
  %6: "f32[3, 4]" = aten::t(%w)
  %7: "f32[5, 4]" = aten::addmm(%v, %x, %6)
  %8: "f32[5, 4]" = aten::where.self(%keep, %7, %c0)
  %9: "f32[]" = aten::scalar_tensor(0, dtype=float32, layout=strided, device="cpu")
  %10: "f32[5, 4]" = aten::where.self(%keep, %grad_out0, %9)
  %19: "b8[5, 1]" = aten::logical_not(%keep)
  %11: "f32[4, 3]" = aten::t(%6)
  %12: "f32[5, 3]" = aten::mm(%10, %11)
  %20: "f32[5, 3]" = aten::masked_fill.Scalar(%12, %19, value=0)
  %13: "f32[4, 5]" = aten::t(%10)
  %22: "f32[5, 3]" = aten::masked_fill.Scalar(%x, %19, value=0)
  %14: "f32[4, 3]" = aten::mm(%13, %22)
  %15: "f32[3, 4]" = aten::t(%14)
  %16: "f32[1, 4]" = aten::sum.dim_IntList(%10, [0], keepdim=True)
  %17: "f32[4]" = aten::view(%16, [4])
  %18: "f32[4, 3]" = aten::t(%15)
  return out0=%8, grad_x=%20, grad_w=%18, grad_v=%17
)");
  CHECK(graph::print(halves.forward) ==
        R"(graph model(%x: "f32[5, 3]", %w: "f32[4, 3]", %v: "f32[4]", %keep: "b8[5, 1]"):
  %c0: "f32[]" = constant 0.0
  %5: "f32[3, 4]" = aten::t(%w)
  %6: "f32[5, 4]" = aten::addmm(%v, %x, %5)
  %7: "f32[5, 4]" = aten::where.self(%keep, %6, %c0)
  return %7
)");
  CHECK(graph::print(halves.backward) ==
        R"(graph model_backward(%x: "f32[5, 3]", %w: "f32[4, 3]", %keep: "b8[5, 1]", %grad_out0: "f32[5, 4]"):
  %c1: "f32[]" = constant 0.0
  %6: "f32[5, 4]" = aten::where.self(%keep, %grad_out0, %c1)
  %7: "f32[3, 4]" = aten::t(%w)
  %8: "f32[4, 3]" = aten::t(%7)
  %9: "f32[5, 3]" = aten::mm(%6, %8)
  %10: "b8[5, 1]" = aten::logical_not(%keep)
  %11: "f32[5, 3]" = aten::masked_fill.Scalar(%9, %10, value=0)
  %12: "f32[4, 5]" = aten::t(%6)
  %13: "f32[5, 3]" = aten::masked_fill.Scalar(%x, %10, value=0)
  %14: "f32[4, 3]" = aten::mm(%12, %13)
  %15: "f32[3, 4]" = aten::t(%14)
  %16: "f32[1, 4]" = aten::sum.dim_IntList(%6, [0], keepdim=True)
  %17: "f32[4]" = aten::view(%16, [4])
  %18: "f32[4, 3]" = aten::t(%15)
  return %11, %18, %17
)");
#endif
}

TEST_CASE("D04: what the forward half computes anyway is saved, not computed again") {
  for (const Model& model : models()) {
    if (model.name != "layer norm") continue;
    const graph::Graph graph = graph_of_model(model, 5);
    const Tensors primals = primals_of(model, 5, {}, 0, false);
    const Joint joint = record_joint(graph, primals, tangents_of(graph, primals));
    const Halves halves = partition(joint, /*folds=*/true);
    CHECK(halves.num_saved == 2);  // mean and 1/std
    CHECK(graph::print(halves.backward).find("aten::native_layer_norm(") == std::string::npos);
  }
}

TEST_CASE("D04: masked rows leave the gradients that they leave with any finite values in them") {
  for (const Model& model : models()) {
    for (const int64_t samples : {2, 5, 31, 32, 33}) {
      const std::vector<int64_t> dead = samples == 2 ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 3};
      const graph::Graph graph = graph_of_model(model, samples);
      const Tensors expected = eager_gradients(graph, primals_of(model, samples, dead, 0.5, false));
      for (const float bad : {nan, inf, -inf}) {
        const Tensors got = joint_gradients(graph, primals_of(model, samples, dead, bad, false));
        REQUIRE(got.size() == expected.size());
        for (size_t i = 0; i < got.size(); ++i)
          CHECK_MESSAGE(at::equal(got[i], expected[i]), model.name << ", " << samples << " samples of which some are "
                                                                   << bad << ", gradient " << i << ":\n"
                                                                   << got[i] << "\nexpected\n"
                                                                   << expected[i]);
      }
    }
  }
}

TEST_CASE("D04: where only weights have gradients, masked rows stay out of them all the same") {
  for (const Model& model : models()) {
    const graph::Graph graph = graph_of_model(model, 5);
    const Tensors expected = eager_gradients(graph, primals_of(model, 5, {1, 3}, 0.5, false));
    Tensors primals = primals_of(model, 5, {1, 3}, nan, false);
    primals[0] = primals[0].detach();
    const Tensors got = joint_gradients(graph, primals);
    REQUIRE(got.size() + 1 == expected.size());
    for (size_t i = 0; i < got.size(); ++i) CHECK_MESSAGE(at::equal(got[i], expected[i + 1]), model.name << " " << i);
  }
}

TEST_CASE("D04: weights get exactly the gradients of the healthy rows alone") {
  const at::Tensor healthy = at::tensor(std::vector<int64_t>{0, 2, 4}, at::kLong);
  for (size_t m = 0; m < 8; ++m) {  // those whose sums are exact in any order
    const Model& model = models()[m];
    const Tensors all = primals_of(model, 5, {1, 3}, nan, true);
    const graph::Graph graph = graph_of_model(model, 5), alone = graph_of_model(model, 3);
    Tensors primals = all;
    primals[0] = all[0].detach().index_select(0, healthy).requires_grad_();
    primals.back() = all.back().index_select(0, healthy);
    const at::Tensor tangent = tangents_of(graph, all)[0].index_select(0, healthy);
    const Tensors ends(primals.begin(), primals.end() - 1);
    const Tensors expected = torch::autograd::grad(test::run(alone, primals), ends, {tangent});
    const Tensors got = joint_gradients(graph, all);
    for (size_t i = 1; i < got.size(); ++i) CHECK_MESSAGE(at::equal(got[i], expected[i]), model.name << " " << i);
    CHECK_MESSAGE(at::equal(got[0].index_select(0, healthy), expected[0]), model.name);
    CHECK_MESSAGE(got[0][1].eq(0).all().item<bool>(), model.name);
  }
}

TEST_CASE("D04: where no row is dead, the pass changes no bit") {
  for (const Model& model : models()) {
    for (const int64_t samples : {0, 1, 2, 31, 32, 33}) {
      const graph::Graph graph = graph_of_model(model, samples);
      const Tensors primals = primals_of(model, samples, {}, 0, false);
      const Tensors expected = eager_gradients(graph, primals), plain = joint_gradients(graph, primals, false),
                    masked = joint_gradients(graph, primals);
      for (size_t i = 0; i < expected.size(); ++i) {
        CHECK_MESSAGE(same_bits(plain[i], expected[i]), model.name << ", " << samples << " samples, gradient " << i);
        CHECK_MESSAGE(same_bits(masked[i], expected[i]), model.name << ", " << samples << " samples, gradient " << i);
      }
    }
  }
}

TEST_CASE("D04: what goes across rows keeps the gradients it has, and a mask of elements is none of rows") {
  const Model across{"centred",
                     {3},
                     {{3}},
                     "  %1 = aten::mean.dim(%x, [0], True)\n  %2 = aten::sub.Tensor(%x, %1)\n"
                     "  %9 = aten::mul.Tensor(%2, %w)\n" +
                         keep};
  const graph::Graph graph = graph_of_model(across, 5);
  const Tensors primals = primals_of(across, 5, {1, 3}, 0.5, false);
  const Tensors expected = eager_gradients(graph, primals), got = joint_gradients(graph, primals);
  CHECK(at::equal(got[0], expected[0]));
  CHECK(got[0][1].ne(0).any().item<bool>());  // a row that is not taken has its part in the mean

  const graph::Graph elements = graph::parse(R"(graph g(%x: "f32[2, 3]", %keep: "b8[2, 3]"):
  %zero: "f32[]" = constant 0.0
  %1 = aten::log(%x)
  %2 = aten::where.self(%keep, %1, %zero)
  return %2
)");
  const at::Tensor x = at::zeros({2, 3}).requires_grad_();
  const Tensors given = {x, at::zeros({2, 3}, at::kBool)};
  CHECK(joint_gradients(elements, given)[0].isnan().all().item<bool>());  // 0 / 0, as without a graph
}

TEST_CASE("D04: what cannot stand in a joint graph is told") {
  const auto refusal = [](const std::string& text, const Tensors& primals) {
    const graph::Graph graph = graph::parse(text);
    return test::message_of<GraphError>(
        [&] { record_joint(graph, primals, {test::run(graph, primals).at(0).detach()}); });
  };
  CHECK(refusal("graph g(%x: \"f32[2, 3]\"):\n  %1 = aten::prod.dim_int(%x, 1)\n  return %1\n",
                {at::ones({2, 3}).requires_grad_()})
            .find("reads a value of a tensor") != std::string::npos);
  CHECK(refusal("graph g(%x: \"f32[2, 3]\"):\n  %1 = aten::as_strided(%x, [3], [2])\n  return %1\n",
                {at::ones({2, 3}).requires_grad_()})
            .find("depends on the memory layout of its argument") != std::string::npos);
}

TEST_CASE("D04: a joint graph holds no strides of the tensors that it was recorded with") {
  const graph::Graph graph = graph::parse(R"(graph g(%x: "f32[2, 3, 4]", %w: "f32[8, 4]"):
  %1 = aten::linear(%x, %w)
  %2 = aten::narrow(%1, -1, 1, 4)
  %3 = aten::transpose.int(%2, -2, -1)
  %4 = aten::matmul(%2, %3)
  %5 = aten::reshape(%2, [-1])
  return %4, %5
)");
  const Tensors primals = {at::ones({2, 3, 4}).requires_grad_(), at::ones({8, 4}).requires_grad_()};
  Tensors tangents;
  for (const at::Tensor& output : test::run(graph, primals)) tangents.push_back(at::ones_like(output.detach()));
  const Joint joint = record_joint(graph, primals, tangents);
  size_t views = 0;
  for (const auto& node : joint.graph.nodes()) {
    for (const auto& argument : node->op.schema().arguments()) CHECK(argument.name() != "stride");
    views += node->op.operator_name().name == "aten::view";
  }
  CHECK(views > 0);
}

TEST_CASE("D04: a call with gradients is one node for autograd, before and after its joint graph is recorded") {
  for (const Model& model : models()) {
    const graph::Graph graph = graph_of_model(model, 5);
    const auto executable = find_backend("aot_eager")(graph, {});
    for (int round = 0; round < 3;
         ++round) {  // after a joint graph that could not be recorded, ATen's nodes would show
      const Tensors primals = primals_of(model, 5, {1, 3}, nan, false);
      Tensors outputs;
      executable->run(primals, outputs);
      CHECK_MESSAGE(outputs[0].grad_fn()->name() == "TriageJointBackward", model.name);
      const Tensors ends(primals.begin(), primals.end() - 1);
      for (const at::Tensor& gradient : torch::autograd::grad(outputs, ends, tangents_of(graph, primals)))
        CHECK_MESSAGE(at::isfinite(gradient).all().item<bool>(), model.name);
    }
  }
}

TEST_CASE("D04: many threads run one aot_eager graph forward and backward") {
  const Model& model = models()[5];
  const graph::Graph graph = graph_of_model(model, 5);
  const auto executable = find_backend("aot_eager")(graph, {});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 20; ++round) {
        const Tensors primals =
            primals_of(model, 5, thread % 2 ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{}, 0.5, true);
        Tensors outputs;
        executable->run(primals, outputs);
        const Tensors ends(primals.begin(), primals.end() - 1);
        const Tensors got = torch::autograd::grad(outputs, ends, tangents_of(graph, primals));
        const Tensors expected = eager_gradients(graph, primals);
        for (size_t i = 0; i < got.size(); ++i) wrong += !at::equal(got[i], expected[i]);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

}  // namespace triage::aot
