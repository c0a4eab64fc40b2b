// Graph texts from outside: whatever they hold, they become a graph that verifies, or a GraphError, within bounds.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <triage/backend.h>

#include <random>

#include "tests/graph/build.h"
#include "tests/mutation.h"

using namespace triage;
using namespace triage::graph;
using namespace triage::test;

namespace {

std::string refusal(const std::string& text) {
  try {
    parse(text);
  } catch (const GraphError& error) {
    return error.what();
  }
  return "";
}

bool refused(const std::string& text, const std::string& why) {
  const std::string said = refusal(text);
  INFO(said);
  CHECK(said.find(why) != std::string::npos);
  return said.find(why) != std::string::npos;
}

std::string chain(int nodes) {
  std::string text = "graph g(%z: \"f32[2, 3]\"):\n  %0 = aten::relu(%z)\n";
  for (int i = 1; i < nodes; ++i) text += fmt::format("  %{} = aten::add.Tensor(%{}, %z)\n", i, i - 1);
  return text + fmt::format("  return %{}\n", nodes - 1);
}

}  // namespace

TEST_CASE("40,000 nodes, and one with 40,000 tensors, are read and planned") {
  const Graph graph = parse(chain(40'000));
  CHECK(graph.nodes().size() == 40'000);
  CHECK(find_backend("eager")(graph, {})->bytes() > 0);
  std::string text = "graph g(%z: \"f32[2, 3]\"):\n";
  std::string list;
  for (int i = 0; i < 40'000; ++i) {
    text += fmt::format("  %{} = aten::neg(%z)\n", i);
    list += fmt::format("{}%{}", i ? ", " : "", i);
  }
  const Graph wide = parse(text + "  %40000 = aten::stack([" + list + "])\n  return %40000\n");
  std::vector<at::Tensor> outputs;
  find_backend("eager")(wide, {})->run({at::ones({2, 3})}, outputs);
  CHECK(outputs.at(0).size(0) == 40'000);
}

TEST_CASE("texts beyond the bounds are refused") {
  std::string inputs;
  for (int i = 0; i < 10'001; ++i) inputs += fmt::format("{}%a{}", i ? ", " : "", i);
  refused("graph g(" + inputs + "):\n  return %a0\n", "more than 10000 inputs and constants");
  refused("graph g(%z):\n  %0 = aten::stack([" + std::string(2'000'001, '['), "more than 2000000 words and signs");
  refused(std::string((64 << 20) + 1, ' '), "bytes; the limit is 67108864");
}

TEST_CASE("types that lie about sizes are refused, or cost nothing") {
  const auto input = [](const std::string& type) { return "graph g(%z: \"" + type + "\"):\n  return %z\n"; };
  CHECK(refusal(input("f32[1000000000, 1000]")).empty());  // nothing is made of it
  refused(input("f32[9223372036854775807, 9223372036854775807]"), "too large for any memory");
  refused(input("f32[0, 9223372036854775807, 9223372036854775807]"), "too large for any memory");
  std::string sizes = "1";
  for (int i = 0; i < 64; ++i) sizes += ", 1";
  refused(input("f32[" + sizes + "]"), "65 dimensions; the limit is 64");
  refused(input("Undefined[2]"), "no dtype");
  const auto constant = [](const std::string& type, const std::string& values) {
    return "graph g():\n  %c: \"" + type + "\" = constant " + values + "\n  return %c\n";
  };
  refused(constant("f32[0, 9223372036854775807, 4]", "[]"), "too large for any memory");
  refused(constant("f32[2][9223372036854775807]", "[1.0, 2.0]"), "strides");
  refused(constant("f32[2]meta", "[1.0, 2.0]"), "no values");
  CHECK_FALSE(refusal(constant("f32[2]cuda:63", "[1.0, 2.0]")).empty());
  CHECK_FALSE(refusal(constant("QInt8[2]", "[1, 2]")).empty());
  CHECK_FALSE(refusal("graph g():\n  %c: \"i64[1]\" = constant(requires_grad=True) [1]\n  return %c\n").empty());
  std::string many = "graph g():\n";  // each within what one may have
  for (int i = 0; i < 100; ++i) many += fmt::format("  %c{}: \"f32[2][9000000]\" = constant [1.0, 2.0]\n", i);
  refused(many + "  return %c0\n", "strides of `%c7` are too large");
}

TEST_CASE("the declared types of a graph are not trusted by any backend") {
  // Of the values inside, and of the result, all wrong.
  const Graph graph = parse(R"(graph lies(%z: "f32[2, 3]"):
  %0: "f32[1000000, 3]" = aten::mul.Tensor(%z, 2.0)
  %1: "f64[7]" = aten::add.Tensor(%0, %z)
  %2: "i8[2, 900]" = aten::sum.dim_IntList(%1, [-1], keepdim=True)
  %3: "f32[1, 1]" = aten::div.Tensor(%1, %2)
  return %3, %1
)");
  for (const char* backend : {"eager", "aot_eager", "fused"}) {
    CAPTURE(backend);
    const at::Tensor example = at::rand({2, 3});
    const auto executable = find_backend(backend)(graph, {example});
    for (const int64_t rows : {2, 1, 33, 0}) {
      const at::Tensor z = at::rand({rows, 3}), sum = z * 2.0 + z;
      std::vector<at::Tensor> outputs;
      executable->run({z}, outputs);
      REQUIRE(outputs.size() == 2);
      CHECK(outputs[1].equal(sum));
      CHECK(at::allclose(outputs[0], sum / sum.sum(-1, true)));
    }
  }
}

TEST_CASE("whatever the types of a graph say, fused computes what the interpreter does") {
  const std::string text = R"(graph mix(%z: "f32[8, 3]", %y: "f32[8, 7]", %w: "f32[3]", %limit: "f64[]" param):
  %0: "i64[8, 4]" flags = triage::flag_nan_and_inf(%z, None, location=5, num_slots=16, policy=0, dtype=int64)
  %1: "f32[8, 3]" = triage::take_ok_p(%0, %z, 0.0)
  %2: "f32[8, 1]" = aten::mean.dim(%1, [-1], keepdim=True)
  %3: "f32[8, 3]" = aten::sub.Tensor(%1, %2)
  %4: "f32[8, 3]" = aten::mul.Tensor(%3, %w)
  %5: "b8[8, 3]" = aten::gt.Tensor(%4, %2)
  %6: "f32[8, 3]" = aten::where.self(%5, %4, %1)
  %7: "f32[8, 7]" = aten::mul.Tensor(%y, %2)
  %8: "f32[8, 7]" = aten::clamp(%7, -1.0, 1.0)
  %9: "f32[8]" = aten::amax(%8, [-1])
  %10: "b8[8]" = aten::gt.Scalar(%9, 0.5)
  %11: "i64[8, 4]" flags = triage::push.where(%0, 7, 5, 3, %10, num_slots=16, policy=0)
  %12, %13 flags = triage::fix.scalar(%6, %11, fallback=0.0, location=5, codes=65535, min_severity=0, num_slots=16, policy=0)
  return %12, %13, %8, %9
)";
  std::mt19937 random(7);
  const auto below = [&](size_t end) { return static_cast<size_t>(random() % end); };
  const std::vector<int64_t> sizes = {0, 1, 2, 3, 4, 7, 8, 9, 1000};
  const std::vector<at::ScalarType> dtypes = {at::kFloat, at::kDouble, at::kLong, at::kBool, at::kHalf, at::kChar};
  int agreed = 0;
  for (int round = 0; round < mutations(8); ++round) {
    CAPTURE(round);
    Graph graph = parse(text);
    std::vector<Value*> values;
    for (const auto& node : graph.nodes())
      for (Value* result : node->results) values.push_back(result);
    for (const auto& input : graph.inputs()) values.push_back(input.value);
    for (size_t lies = 1 + below(3); lies > 0; --lies) {
      Value* value = values[below(values.size())];
      MutableValue& fields = graph.edit(value);
      if (!fields.meta) continue;
      if (below(3) == 0) fields.meta->dtype = dtypes[below(dtypes.size())];
      if (below(3) == 0) fields.meta->sizes.resize(below(4), 1);
      if (!fields.meta->sizes.empty())
        fields.meta->sizes[below(fields.meta->sizes.size())] = sizes[below(sizes.size())];
      if (below(8) == 0) fields.is_flags = !fields.is_flags;
    }
    at::manual_seed(round);
    const std::vector<at::Tensor> inputs = {at::randn({8, 3}).div(at::randint(0, 5, {8, 1})), at::randn({8, 7}),
                                            at::randn({3}), at::scalar_tensor(2.0, at::kDouble)};
    std::vector<at::Tensor> wanted, got;
    find_backend("eager")(graph, inputs)->run(inputs, wanted);
    std::unique_ptr<Executable> fused;
    try {
      fused = find_backend("fused")(graph, inputs);
    } catch (const std::exception&) {
      continue;  // a refusal is as good
    }
    fused->run(inputs, got);
    REQUIRE(got.size() == wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      CAPTURE(print(graph));
      REQUIRE(got[i].sizes() == wanted[i].sizes());
      REQUIRE((got[i].scalar_type() == wanted[i].scalar_type()));
      CHECK(at::allclose(got[i].to(at::kDouble), wanted[i].to(at::kDouble), 1e-5, 1e-6, /*equal_nan=*/true));
    }
    ++agreed;
  }
  CHECK(agreed > 0);
}

TEST_CASE("changed graph texts become graphs or errors") {
  Mutator mutator({R"(graph repair(%z: "f32[32, 4]", %f: "i64[32, 1]" flags, %limit: "f64[]" param):
  %w: "f32[2, 2][1, 2]" = constant(variable=True, requires_grad=True) [[1.0, nan], [nan(0x7fc00001), -inf]]
  %c: "c64[2]" = constant [complex(1.0, 2.0), complex(0.0, -0.0)]
  %0: "f32[32, 4]" = aten::mul.Tensor(%z, %limit)  # repair.lua:3
  %1: "b8[32, 4]" = aten::gt.Scalar(%0, 3)
  %2: "f32[32, 4]" = aten::where.self(%1, %z, %0)
  %3, %4 = aten::topk(%2, 2, dim=-1, largest=True, sorted=False)
  %5: "f32[64, 4]" = aten::cat([%2, %z], 0)
  %6 = aten::to.dtype(%5, float64, non_blocking=False, copy=True, memory_format=None)
  return z = %2, best = %4, all = %6, f = %f
)",
                   R"(graph sizes(%x: "f32[8, 8]", %"a b": "i64[]"):
  %0: "i64[]" = triage::item(%"a b")
  %1: "b8[]" = aten::ge.Scalar(%0, 0)
  triage::assert_scalar(%1, "\"n\" is \\ negative\n\x1b")
  %2: "f32[3, 8]" = aten::zeros([%0, 8], dtype=float32, device="cpu", layout=strided)
  return %2
)"});
  const int count = mutations(3000);
  int read = 0;
  for (int round = 0; round < count; ++round) {
    const std::string text = mutator.next();
    CAPTURE(round);
    try {
      const Graph graph = parse(text);
      verify(graph);
      const std::string printed = print(graph);
      CHECK(print(parse(printed)) == printed);
      ++read;
    } catch (const GraphError&) {
    }
  }
  CHECK(read > 0);
  CHECK(read < count);
}
