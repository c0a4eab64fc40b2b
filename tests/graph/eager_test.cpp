#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "runtime/graph/evaluation/evaluate.h"
#include "tests/graph/build.h"

using namespace triage;
using namespace triage::graph;
using namespace triage::test;

namespace {

Graph graph_of(const std::string& inputs, const std::string& body, const std::string& outputs) {
  return parse("graph g(" + inputs + "):\n" + body + "  return " + outputs + "\n");
}

/// The first node's result without the interpreter.
at::Tensor evaluate_first(const Graph& graph, const at::Tensor& z) {
  return evaluate(*graph.nodes().at(0), [&](const Value*) { return z; }).at(0);
}

std::atomic<int> alive_tensors{0}, most_alive_tensors{0};

/// x + 1 in memory that is counted.
at::Tensor tracked_add(const at::Tensor& x) {
  auto sum = std::make_shared<at::Tensor>(x + 1);
  most_alive_tensors = std::max(most_alive_tensors.load(), ++alive_tensors);
  return at::from_blob(
      sum->data_ptr(), sum->sizes(),
      [sum](void*) mutable {
        sum.reset();
        --alive_tensors;
      },
      sum->options());
}

/// exp(-x), or what a graph with an error in it throws where `fail` is set, through a graph of its own.
at::Tensor nested(const at::Tensor& x, bool fail) {
  const char* body = fail ? "  %0 = aten::neg(%x)\n  %1 = aten::mm(%0, %0)  # inner.lua:9\n"
                          : "  %0 = aten::neg(%x)\n  %1 = aten::exp(%0)\n";
  return run(graph_of("%x", body, "%1"), {x})[0];
}

TORCH_LIBRARY(graph_test, m) {
  m.def("tracked_add(Tensor x) -> Tensor", tracked_add);
  m.def("nested(Tensor x, bool fail) -> Tensor", nested);
}

}  // namespace

TEST_CASE("eager computes what direct calls compute") {
  Graph graph = graph_of("%z, %w", R"(
  %s: "f32[3]" = constant [1.0, 0.1, -2.0]
  %0 = aten::mul.Tensor(%z, %s)
  %1 = aten::add.Tensor(%0, %w, alpha=3)
  %2 = aten::softmax.int(%1, -1)
  %3, %4 = aten::max.dim(%2, -1, keepdim=True)
  %5 = aten::cat([%z, %2], dim=1)
  %6 = aten::index.Tensor(%z, [None, %4])
  %7 = aten::clamp(%z, min=-0.5)
  %8 = aten::std.dim(%z, [-1], unbiased=True)
)",
                         "%2, %3, %4, %5, %6, %7, %8");
  for (int64_t rows : {0, 1, 2, 31, 32, 33}) {
    at::Tensor z = at::randn({rows, 3}), w = at::randn({rows, 3});
    at::Tensor soft = at::softmax(at::add(at::mul(z, at::tensor({1.0f, 0.1f, -2.0f})), w, 3), -1);
    auto [top, where] = at::max(soft, -1, true);
    auto outputs = run(graph, {z, w});
    REQUIRE(outputs.size() == 7);
    CHECK(same_bits(outputs[0], soft));
    CHECK(same_bits(outputs[1], top));
    CHECK(same_bits(outputs[2], where));
    CHECK(same_bits(outputs[3], at::cat({z, soft}, 1)));
    CHECK(same_bits(outputs[4], at::index(z, {c10::optional<at::Tensor>(), c10::optional<at::Tensor>(where)})));
    CHECK(same_bits(outputs[5], at::clamp(z, -0.5)));
    CHECK(same_bits(outputs[6], at::std(z, at::IntArrayRef{-1}, true)));
  }
}

TEST_CASE("a number in a tensor's place is a wrapped number") {
  Graph graph = graph_of("%z", "  %0 = aten::mul.Tensor(%z, 2.5)\n", "%0");
  bool kept = run(graph, {at::ones({2}, at::kBFloat16)})[0].scalar_type() == at::kBFloat16;
  CHECK(kept);
}

TEST_CASE("params are read as numbers where the operator wants one") {
  Graph graph = graph_of("%z, %limit param, %dim param", R"(
  %0 = aten::clamp(%z, max=%limit)
  %1 = aten::softmax.int(%z, %dim)
  %2 = aten::dropout(%z, %limit, train=False)
  %3 = aten::reshape(%z, [%dim, -1])
)",
                         "%0, %1, %3");
  at::Tensor z = at::randn({2, 3});
  auto outputs = run(graph, {z, at::scalar_tensor(0.25, at::kDouble), at::scalar_tensor(1, at::kLong)});
  CHECK(same_bits(outputs[0], at::clamp(z, c10::nullopt, 0.25)));
  CHECK(same_bits(outputs[1], at::softmax(z, 1)));
  CHECK(outputs[2].sizes() == at::IntArrayRef({1, 6}));
  CHECK(same_bits(run(graph, {z, at::scalar_tensor(0.5f), at::ones({1, 1}, at::kLong)})[0],
                  at::clamp(z, c10::nullopt, 0.5)));
  CHECK_ERROR(PolicyError, run(graph, {z, at::ones({2}), at::scalar_tensor(1, at::kLong)}),
              "`%0 = aten::clamp` in graph `g` failed: expected a number, got a tensor of shape [2]");
}

TEST_CASE("a constant of the graph may be read as a number") {
  Graph graph = graph_of("%z", "  %c: \"f64[]\" = constant 0.5\n  %0 = aten::clamp(%z, max=%c)\n", "%0");
  at::Tensor z = at::randn({2, 3});
  CHECK(same_bits(run(graph, {z})[0], at::clamp(z, c10::nullopt, 0.5)));
}

TEST_CASE("outputs: an input that is returned comes back as it is") {
  at::Tensor z = at::randn({4}), w = at::randn({4});
  auto outputs = run(graph_of("%z, %w", "", "%w, %z, %w"), {z, w});
  REQUIRE(outputs.size() == 3);
  CHECK(outputs[0].is_same(w));
  CHECK(outputs[1].is_same(z));
  CHECK(outputs[2].is_same(w));
}

TEST_CASE("outputs: what shares memory with an input is copied, also where schemas do not tell") {
  at::Tensor z = at::randn({2, 3});
  for (const char* call : {"aten::view(%z, [3, 2])", "aten::reshape(%z, [6])", "aten::t(%z)", "aten::contiguous(%z)",
                           "aten::type_as(%z, %z)", "aten::dropout(%z, 0.5, train=False)", "aten::detach(%z)",
                           "aten::select.int(%z, 0, 0)", "aten::expand(%z, [5, 2, 3])", "aten::atleast_1d(%z)",
                           "aten::einsum(\"ij->ji\", [%z])", "aten::to.dtype(%z, dtype=float32)"}) {
    CAPTURE(call);
    Graph graph = graph_of("%z", std::string("  %0 = ") + call + "\n", "%0, %z");
    auto outputs = run(graph, {z});
    CHECK_FALSE(outputs[0].is_alias_of(z));
    CHECK(outputs[1].is_same(z));
    at::Tensor direct = evaluate_first(graph, z);
    CHECK(same_bits(outputs[0], direct));
  }
}

TEST_CASE("outputs: what shares memory with a constant is copied") {
  Graph graph =
      graph_of("%z", "  %c: \"f32[3]\" = constant [1.0, 2.0, 3.0]\n  %0 = aten::unsqueeze(%c, 0)\n", "%c, %0, %c");
  auto outputs = run(graph, {at::ones({1})});
  for (const auto& output : outputs) CHECK_FALSE(output.is_alias_of(graph.constants()[0].tensor));
  outputs[0].fill_(9);
  CHECK(graph.constants()[0].tensor[0].item<float>() == 1.0f);
  CHECK(run(graph, {at::ones({1})})[0][0].item<float>() == 1.0f);
}

TEST_CASE("outputs: one value may be returned twice, and be used besides") {
  Graph graph = graph_of("%z", "  %0 = aten::neg(%z)\n  %1 = aten::exp(%0)\n", "%0, %1, %0");
  at::Tensor z = at::randn({3});
  auto outputs = run(graph, {z});
  CHECK(same_bits(outputs[0], z.neg()));
  CHECK(same_bits(outputs[1], z.neg().exp()));
  CHECK(outputs[2].is_same(outputs[0]));
}

TEST_CASE("a value may stand several times in one call, the last included") {
  Graph graph =
      graph_of("%z", "  %0 = aten::neg(%z)\n  %1 = aten::cat([%0, %0, %z])\n  %2 = aten::mul.Tensor(%1, %1)\n", "%2");
  at::Tensor z = at::randn({3}), all = at::cat({z.neg(), z.neg(), z});
  CHECK(same_bits(run(graph, {z})[0], all * all));
}

TEST_CASE("lists of results are flattened, and their number is checked") {
  Graph graph = graph_of(
      "%z", "  %0, %1, %2 = aten::split.Tensor(%z, 2)  # split.lua:4\n  %3 = aten::add.Tensor(%0, %1)\n", "%3, %2");
  at::Tensor z = at::randn({6, 2});
  auto outputs = run(graph, {z});
  CHECK(same_bits(outputs[0], z.slice(0, 0, 2) + z.slice(0, 2, 4)));
  CHECK(same_bits(outputs[1], z.slice(0, 4, 6)));
  CHECK_ERROR(PolicyError, run(graph, {at::randn({8, 2})}),
              "split.lua:4: `%0, %1, %2 = aten::split.Tensor` in graph `g` failed: it returned 4 tensors");
  CHECK_ERROR(PolicyError, run(graph, {at::randn({4, 2})}), "it returned 2 tensors, but the graph was captured with 3");
}

TEST_CASE("errors of operators say which call and script line, and leave the executable usable") {
  Graph graph = graph_of("%z, %w", "  %0 = aten::neg(%z)  # a.lua:2\n  %1 = aten::mm(%0, %w)  # a.lua:7\n", "%1");
  auto executable = find_backend("eager")(graph, {});
  std::vector<at::Tensor> outputs;
  try {
    executable->run({at::ones({2, 3}), at::ones({2, 3})}, outputs);
    FAIL("ran");
  } catch (const PolicyError& error) {
    std::string message = error.what();
    CHECK(contains(message, "a.lua:7: `%1 = aten::mm` in graph `g` failed: "));
    CHECK(contains(message, "mat1 and mat2 shapes cannot be multiplied"));
    CHECK_FALSE(contains(message, "Exception raised from"));
    CHECK(error.source().file == "a.lua");
    CHECK(error.source().line == 7);
  }
  outputs.clear();
  executable->run({at::ones({2, 3}), at::ones({3, 1})}, outputs);
  CHECK(outputs[0].sizes() == at::IntArrayRef({2, 1}));
}

TEST_CASE("an operator may run a graph itself; its errors keep their place") {
  auto outer = [](const char* fail) {
    return graph_of("%z",
                    std::string("  %0 = aten::abs(%z)  # outer.lua:1\n  %1 = graph_test::nested(%0, ") + fail +
                        ")  # outer.lua:2\n  %2 = aten::add.Tensor(%0, %1)\n",
                    "%2");
  };
  at::Tensor z = at::randn({4});
  CHECK(same_bits(run(outer("False"), {z})[0], z.abs() + z.abs().neg().exp()));
  CHECK_ERROR(PolicyError, run(outer("True"), {z}), "inner.lua:9: `%1 = aten::mm`");
  CHECK(same_bits(run(outer("False"), {z})[0], z.abs() + z.abs().neg().exp()));
}

TEST_CASE("a wrong number of inputs and an invalid graph are errors") {
  CHECK_ERROR(InputError, run(graph_of("%z", "", "%z"), {}), "graph `g` takes 1 inputs, got 0");
  Graph bad;
  Value* z = bad.add_input("z", InputKind::tensor);
  append(bad, "aten::softmax.int", {z, none()});
  CHECK_ERROR(GraphError, run(bad, {at::ones({1})}), "argument `dim` expects int, got None");
}

TEST_CASE("intermediates are freed at their last use, and nothing is kept after a run") {
  // The operator below looks at how many of the 16 intermediates are alive while the graph runs.
  Graph graph("chain");
  Value* value = graph.add_input("z", InputKind::tensor);
  for (int i = 0; i < 16; ++i) value = add(graph, "graph_test::tracked_add", {value});
  append(graph, "aten::exp", {value});  // a result that nobody uses
  graph.set_outputs({value});
  auto executable = find_backend("eager")(graph, {});
  at::Tensor z = at::ones({2});
  std::vector<at::Tensor> outputs;
  alive_tensors = most_alive_tensors = 0;
  executable->run({z}, outputs);
  CHECK(same_bits(outputs[0], z + 16));
  CHECK(most_alive_tensors.load() == 2);
  CHECK(alive_tensors.load() == 1);
  CHECK(outputs[0].use_count() == 1);
  CHECK(z.use_count() == 1);
  outputs.clear();
  CHECK(alive_tensors.load() == 0);
}

TEST_CASE("autograd records through the interpreter") {
  Graph graph = graph_of(
      "%z, %w", "  %0 = aten::mul.Tensor(%z, %w)\n  %1 = aten::view(%z, [3])\n  %2 = aten::sum(%0)\n", "%2, %1");
  at::Tensor z = at::randn({3}), w = at::randn({3}).requires_grad_();
  auto outputs = run(graph, {z, w});
  CHECK(outputs[0].requires_grad());
  outputs[0].backward();
  CHECK(same_bits(w.grad(), z));
}

TEST_CASE("several threads run one executable at once") {
  Graph graph = graph_of("%z", R"(
  %c: "f32[3]" = constant [1.0, 2.0, 3.0]
  %0 = aten::add.Tensor(%z, %c)
  %1 = aten::stack([%0, %z])
  %2 = aten::softmax.int(%1, 0)
  %3, %4 = aten::split.Tensor(%2, 1)
)",
                         "%3, %4, %c");
  auto executable = find_backend("eager")(graph, {});
  std::atomic<int> wrong{0};
  auto work = [&](int seed) {
    at::Tensor z = at::full({5, 3}, seed), soft = at::softmax(at::stack({z + at::tensor({1.0f, 2.0f, 3.0f}), z}), 0);
    for (int i = 0; i < 300; ++i) {
      std::vector<at::Tensor> outputs;
      executable->run({z}, outputs);
      if (!same_bits(outputs[0], soft.slice(0, 0, 1)) || !same_bits(outputs[1], soft.slice(0, 1, 2))) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (auto& thread : threads) thread.join();
  CHECK(wrong.load() == 0);
}

TEST_CASE("the registry of backends") {
  CHECK(list_backends() == std::vector<std::string>{"aot_eager", "eager", "fused"});
  register_backend("mine", [](const Graph& graph, const std::vector<at::Tensor>& examples) {
    return find_backend("eager")(graph, examples);
  });
  CHECK(list_backends() == std::vector<std::string>{"aot_eager", "eager", "fused", "mine"});
  CHECK(find_backend("mine") != nullptr);
  CHECK_ERROR(InputError, find_backend("their"),
              "there is no backend `their`; the backends are: aot_eager, eager, fused, mine");
  CHECK_ERROR(InputError, register_backend("", find_backend("eager")), "a backend needs a name");
  CHECK_ERROR(InputError, register_backend("empty", {}), "`empty` is an empty function");
}
