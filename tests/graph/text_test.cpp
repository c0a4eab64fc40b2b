#include <doctest/doctest.h>

#include <limits>

#include "tests/graph/build.h"

using namespace triage;
using namespace triage::graph;
using namespace triage::test;

namespace {

void check_round_trip(const Graph& graph) {
  std::string text = print(graph);
  INFO(text);
  Graph back = parse(text);
  CHECK(print(back) == text);
}

/// A graph that is one call on an input `z`, around the text of its arguments.
std::string around(const std::string& call) {
  return "graph g(%z: \"f32[2, 3]\"):\n  %0 = " + call + "\n  return %0\n";
}

/// The operand `index` of the only call.
const Operand& operand(const Graph& graph, size_t index) { return graph.nodes().at(0)->operands.at(index); }

}  // namespace

TEST_CASE("a graph reads like what torch prints") {
  Graph graph("repair");
  Value* z = graph.add_input("z", InputKind::tensor, meta({32, 512}));
  Value* f = graph.add_input("f", InputKind::tensor, meta({32, 4}, at::kLong));
  graph.edit(f).is_flags = true;
  Value* limit = graph.add_input("limit", InputKind::param, meta({}, at::kDouble));
  Value* scale = graph.add_constant(at::tensor({1.0f, 0.1f, -0.0f}), "scale");
  auto with_meta = [&graph](Node* node, std::vector<TensorMeta> metas) {
    for (size_t i = 0; i < metas.size(); ++i) graph.edit(node->results[i]).meta = metas[i];
    return node->results[0];
  };
  Value* far =
      with_meta(append(graph, "aten::gt.Tensor", {z, limit}, 1, {"repair.lua", 3}), {meta({32, 512}, at::kBool)});
  Value* any =
      with_meta(append(graph, "aten::any.dim", {far, integer(-1)}, 1, {"repair.lua", 3}), {meta({32}, at::kBool)});
  Value* soft = with_meta(append(graph, "aten::softmax.int", {z, integer(-1), integer(6)}, 1, {"repair.lua", 4}),
                          {meta({32, 512})});
  with_meta(append(graph, "aten::add.Tensor", {soft, scale, integer(2)}), {});
  Node* top = append(graph, "aten::max.dim", {z, integer(-1), c10::IValue(true)}, 2, {"repair.lua", 5});
  with_meta(top, {meta({32, 1}), meta({32, 1}, at::kLong)});
  Value* mean = with_meta(append(graph, "aten::mean.dim", {z, sizes({-1}), c10::IValue(true)}), {meta({32, 1})});
  graph.set_outputs({top->results[0], mean, any, f}, {"z", "mean", "any", "f"});
  CHECK(print(graph) ==
        R"(graph repair(%z: "f32[32, 512]", %f: "i64[32, 4]" flags, %limit: "f64[]" param):
  %scale: "f32[3]" = constant [1.0, 0.1, -0.0]
  %4: "b8[32, 512]" = aten::gt.Tensor(%z, %limit)                           # repair.lua:3
  %5: "b8[32]" = aten::any.dim(%4, -1)                                      # repair.lua:3
  %6: "f32[32, 512]" = aten::softmax.int(%z, -1, dtype=float32)             # repair.lua:4
  %7 = aten::add.Tensor(%6, %scale, alpha=2)
  %8: "f32[32, 1]", %9: "i64[32, 1]" = aten::max.dim(%z, -1, keepdim=True)  # repair.lua:5
  %10: "f32[32, 1]" = aten::mean.dim(%z, [-1], keepdim=True)
  return z=%8, mean=%10, any=%5, f=%f
)");
  check_round_trip(graph);
}

TEST_CASE("parsing gives back what was built") {
  Graph graph = parse(R"(
# a comment of its own
graph repair(
    %z: "f32[32, 512]",
    %limit: "f64[]" param,
):
  %w: "f32[2, 2]" = constant [[1.0, 2.0],   # a comment inside
                              [3.0, nan]]
  %3: "f32[32, 512]" = aten::clamp(%z, max=%limit)  # a folder/with: odd.lua:12
  %1: "i64[32, 1]" flags = triage::flag_nan(%3, None, location=3, num_slots=16, policy=0, dtype=int64)
  return y=%3, "odd name"=%1
)");
  CHECK(graph.name() == "repair");
  CHECK(graph.inputs()[0].value->meta->sizes == std::vector<int64_t>{32, 512});
  CHECK(graph.inputs()[1].kind == InputKind::param);
  CHECK(graph.nodes()[0]->source.file == "a folder/with: odd.lua");
  CHECK(graph.nodes()[0]->source.line == 12);
  CHECK(graph.nodes()[0]->operands[1].constant()->isNone());
  CHECK(graph.nodes()[0]->operands[2].value() == graph.inputs()[1].value);
  CHECK(graph.nodes()[1]->results[0]->is_flags);
  CHECK(graph.nodes()[1]->operands[5].constant()->toInt() == static_cast<int64_t>(at::kLong));
  CHECK(graph.output_names() == std::vector<std::string>{"y", "odd name"});
  CHECK(graph.constants()[0].tensor[1][0].item<float>() == 3.0f);
  CHECK(graph.nodes()[0]->results[0]->id == 3);
  CHECK(graph.new_value()->id > 3);
}

TEST_CASE("numbers keep their type and bits") {
  auto scalar = [](const std::string& text) {
    return *operand(parse(around("aten::add.Scalar(%z, " + text + ")")), 1).constant();
  };
  CHECK(scalar("1").isInt());
  CHECK(scalar("1.0").isDouble());
  CHECK(scalar("True").isBool());
  CHECK(scalar("-9223372036854775808").toInt() == std::numeric_limits<int64_t>::min());
  CHECK(std::signbit(scalar("-0.0").toDouble()));
  CHECK(scalar("complex(1.0, -2.5)").toComplexDouble() == c10::complex<double>(1.0, -2.5));
  const double odd_nan = std::bit_cast<double>(0xfff8'0000'0000'1234ull);
  for (double value :
       {0.1, 1e300, 5e-324, 1e22, 123456789.0, -std::numeric_limits<double>::infinity(), std::nan(""), odd_nan}) {
    Graph graph;
    Value* z = graph.add_input("z", InputKind::tensor);
    graph.set_outputs({add(graph, "aten::add.Scalar", {z, number(value)})});
    Graph back = parse(print(graph));
    CHECK(std::bit_cast<uint64_t>(operand(back, 1).constant()->toDouble()) == std::bit_cast<uint64_t>(value));
  }
}

TEST_CASE("every kind of argument goes round") {
  for (const char* call : {
           "aten::dropout(%z, 0.5, train=False)",
           "aten::sum.dim_IntList(%z, [0, 1], dtype=bfloat16)",
           "aten::sum.dim_IntList(%z, None)",
           "aten::sum.dim_IntList(%z, [])",
           "aten::to.dtype_layout(%z, dtype=float16, layout=strided, device=\"cpu\", non_blocking=True, "
           "memory_format=contiguous_format)",
           "aten::clone(%z, memory_format=channels_last)",
           "aten::index.Tensor(%z, [None, %z])",
           "aten::cat([%z, %z], dim=1)",
           "aten::cat([])",
           "aten::div.Tensor_mode(%z, %z, rounding_mode=\"floor\")",
           "aten::div.Tensor_mode(%z, %z, rounding_mode=None)",
           "aten::einsum(\"ij,kj->ik\", [%z, %z])",
           "aten::upsample_nearest1d.vec(%z, None, scale_factors=[2.0, 0.1])",
           "aten::nan_to_num(%z, nan=0.0, posinf=inf, neginf=-inf)",
           "aten::add.Tensor(%z, 1)",
           "aten::mul.Tensor(%z, complex(0.0, nan))",
           "aten::where.self(%z, 1.0, True)",
           "aten::layer_norm(%z, [3], weight=%z)",
           "aten::zeros([2, 3], dtype=complex64)",
           "aten::random(%z)",
           "aten::full([2], 3, dtype=bool)",
           "aten::roll(%z, [1], dims=[0])",
           "aten::reshape(%z, [%z, -1])",
       }) {
    std::string text = around(call);
    CAPTURE(call);
    std::string came;
    REQUIRE_NOTHROW(came = print(parse(text)));
    CHECK(came == text);
  }
}

TEST_CASE("no results, several results, lists of results") {
  for (const char* body : {"  aten::_assert_async(%z)\n", "  %0, %1: \"i64[2]\" = aten::max.dim(%z, 1)\n",
                           "  %0, %1, %2 = aten::split.Tensor(%z, 1, dim=1)\n"}) {
    std::string text = std::string("graph g(%z):\n") + body + "  return\n";
    CHECK(print(parse(text)) == text);
  }
}

TEST_CASE("constants keep their bits, of every dtype") {
  auto goes_round = [](const at::Tensor& tensor) {
    Graph graph;
    graph.set_outputs({graph.add_constant(tensor)});
    Graph back = parse(print(graph));
    CAPTURE(print(graph));
    const at::Tensor& came = back.constants().at(0).tensor;
    CHECK(same_bits(came, tensor));
    CHECK(came.strides() == tensor.strides());
    CHECK(print(back) == print(graph));
  };
  at::Tensor bits =
      at::randint(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), {40}, at::kLong);
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                               at::kChar, at::kByte, at::kComplexFloat, at::kComplexDouble, at::kComplexHalf})
    goes_round(bits.view(dtype));
  goes_round(at::arange(6) % 2 == 0);
  // Every NaN of the small types.
  at::Tensor all = at::arange(-32768, 32768).to(at::kShort);
  for (at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    at::Tensor nans = all.view(dtype);
    nans = nans.index({nans.ne(nans)});
    for (const at::Tensor& chunk : nans.split(900)) goes_round(chunk.contiguous());
  }
}

TEST_CASE("constants keep shape, strides and properties") {
  auto text_of = [](const at::Tensor& tensor) {
    Graph graph("g");
    graph.set_outputs({graph.add_constant(tensor)});
    std::string text = print(graph);
    CHECK(print(parse(text)) == text);
    return text;
  };
  at::Tensor matrix = at::arange(6).to(at::kFloat).reshape({2, 3});
  CHECK(contains(text_of(matrix), "%c0: \"f32[2, 3]\" = constant [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]"));
  CHECK(contains(text_of(matrix.t()), "\"f32[3, 2][1, 3]\" = constant [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]"));
  CHECK(contains(text_of(at::ones({1}).expand({3})), "\"f32[3][0]\" = constant [1.0, 1.0, 1.0]"));
  CHECK(contains(text_of(at::scalar_tensor(2.5)), "\"f32[]\" = constant 2.5"));
  CHECK(contains(text_of(at::zeros({0, 1000000000})), "\"f32[0, 1000000000]\" = constant []"));
  CHECK(contains(text_of(at::ones({2}).requires_grad_()), "constant(requires_grad=True) [1.0, 1.0]"));
  Graph variable("g");
  variable.set_outputs({variable.add_variable(at::ones({2}).requires_grad_(), "w")});
  const std::string variable_text = print(variable);
  CHECK(contains(variable_text, "%w: \"f32[2]\" = constant(variable=True, requires_grad=True) [1.0, 1.0]"));
  CHECK(print(parse(variable_text)) == variable_text);
  CHECK(parse(variable_text).constants().at(0).variable);
  CHECK_FALSE(parse(text_of(at::ones({2}))).constants().at(0).variable);
  at::Tensor wrapped = at::scalar_tensor(2.0, at::kDouble);
  wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
  CHECK(contains(text_of(wrapped), "constant(wrapped_number=True) 2.0"));
  Graph graph;
  graph.add_constant(wrapped);
  CHECK(parse(print(graph)).constants()[0].tensor.unsafeGetTensorImpl()->is_wrapped_number());
  CHECK(parse(text_of(at::ones({2}).requires_grad_())).constants()[0].tensor.requires_grad());
}

TEST_CASE("large constants are named, and such a text is refused") {
  Graph graph("g");
  graph.set_outputs({graph.add_constant(at::zeros({1001}), "table")});
  std::string text = print(graph);
  CHECK(contains(text, "%table: \"f32[1001]\" = constant ..."));
  CHECK_ERROR(GraphError, parse(text),
              "line 2, column 3: constant `%table` has 1001 elements, but the text of a graph holds at most 1000");
  CHECK_ERROR(GraphError, parse("graph g():\n  %c: \"f32[2]\" = constant ...\n  return %c"),
              "line 2, column 27: the values of constant `%c` were left out");
  Graph fits("g");
  fits.set_outputs({fits.add_constant(at::rand({1000}))});
  check_round_trip(fits);
}

TEST_CASE("names and script files may hold anything") {
  Graph graph("a \"graph\"\n");
  Value* z = graph.add_input("odd name", InputKind::tensor);
  Value* three = graph.add_input("3", InputKind::tensor);
  Value* w = graph.add_constant(at::ones({1}), "\xc3\xa9\x01\\");
  Value* sum = append(graph, "aten::add.Tensor", {z, three}, 1, {"C:\\x\n\"y\" # z:9", 4})->results[0];
  Value* rest = append(graph, "aten::add.Tensor", {sum, w}, 1, {"only a file", 0})->results[0];
  graph.set_outputs({rest}, {"return"});
  check_round_trip(graph);
  Graph back = parse(print(graph));
  CHECK(back.name() == graph.name());
  CHECK(back.nodes()[0]->source.file == "C:\\x\n\"y\" # z:9");
  CHECK(back.nodes()[0]->source.line == 4);
  CHECK(back.inputs()[1].value->name == "3");
}

TEST_CASE("errors of the parser say where") {
  auto fails = [](const std::string& text, const std::string& part) { CHECK_ERROR(GraphError, parse(text), part); };
  fails("", "line 1, column 1: expected `graph NAME(...)`, got the end of the text");
  fails("grahp g():", "line 1, column 1: expected `graph NAME(...)`, got `grahp`");
  fails("graph g(%z\n  %y):", "line 2, column 3: expected `)` after the inputs, got `%y`");
  fails("graph g(%z, %z):\n return", "line 1, column 13: `%z` is defined twice");
  fails("graph g(%0):\n return", "line 1, column 9: input `%0` needs a name");
  fails("graph g(%z: \"f31[2]\"):\n return", "line 1, column 13: type \"f31[2]\": LibTorch has no dtype `f31`");
  fails("graph g(%z: \"f32[2\"):\n return", "expected a dtype and sizes");
  fails("graph g(%z: \"f32[a]\"):\n return", "got `a`");
  fails("graph g(%z: \"f32[2]nowhere\"):\n return", "`nowhere` is not a device");
  fails("graph g(%z: \"f32):\n return", "line 1, column 13: the string is not closed");
  fails("graph g(%z: \"\\q\"):\n return", "unknown escape");
  fails("graph g(%z):\n  %0 = aten::neg(%z)\n",
        "line 3, column 1: expected an operator such as aten::add.Tensor, or `return`");
  fails("graph g(%z):\n  ?", "line 2, column 3: unexpected `?`");
  fails(around("neg(%z)"), "line 2, column 8: expected an operator such as aten::add.Tensor, or `return`, got `neg`");
  fails(around("aten::frobnicate(%z)"), "line 2, column 8: there is no operator `aten::frobnicate` in this LibTorch");
  fails(around("aten::neg(%y)"), "line 2, column 18: `%y` is not defined before it is used");
  fails(around("aten::neg(%0)"), "line 2, column 18: `%0` is not defined before it is used");
  fails(around("aten::neg()"), "argument `self` of `aten::neg` is missing");
  fails(around("aten::neg(%z, %z)"), "line 2, column 22: `aten::neg` takes 1 arguments");
  fails(around("aten::neg(self=%z, self=%z)"), "line 2, column 27: argument `self` is given twice");
  fails(around("aten::neg(%z, out=%z)"), "line 2, column 22: `aten::neg` has no argument `out`");
  fails(around("aten::softmax.int(%z, 0.5)"), "line 2, column 30: expected an integer for `dim`, got `0.5`");
  fails(around("aten::softmax.int(%z, 99999999999999999999)"), "expected an integer for `dim`");
  fails(around("aten::softmax.int(%z, 0, dtype=float31)"),
        "line 2, column 39: expected a dtype such as float32 for `dtype`, got `float31`");
  fails(around("aten::softmax.int(%z, None)"),
        "line 2, column 8: %0 = aten::softmax.int: argument `dim` expects int, got None");
  fails(around("aten::div.Tensor_mode(%z, %z, rounding_mode=floor)"),
        "expected a string for `rounding_mode`, got `floor`");
  fails(around("aten::cat([%z, %z)"), "line 2, column 25: expected `]` at the end of the list, got `)`");
  fails(around("aten::relu_(%z)"), "line 2, column 8: %0 = aten::relu_: it writes to an argument");
  fails(around("aten::max.dim(%z, 0)"), "1 results, but the schema returns 2");
  fails("graph g(%z):\n  %y = aten::neg(%z)\n  return %y", "line 2, column 3: results are numbered: write %0, not %y");
  fails("graph g(%z):\n  %1x = aten::neg(%z)\n  return", "line 2, column 3: `%1x` is not a value");
  fails("graph g(%z):\n  %0 = aten::neg(%z)\n  %0 = aten::neg(%z)\n  return",
        "line 3, column 3: `%0` is defined twice");
  fails("graph g(%z):\n  return %z, a=%z", "either all outputs have names or none");
  fails("graph g(%z):\n  return %z %z", "line 2, column 13: expected the end of the text after the outputs, got `%z`");
  fails("graph g():\n  %c: \"f32[2]\" = constant [1.0]\n  return",
        "line 2, column 31: expected `,` (expected 2 elements, got 1)");
  fails("graph g():\n  %c: \"f32[1]\" = constant [1.0, 2.0]\n  return", "expected `]` after 1 elements");
  fails("graph g():\n  %c: \"i8[1]\" = constant [300]\n  return",
        "line 2, column 27: `300` is not a value of dtype int8");
  fails("graph g():\n  %c: \"f16[1]\" = constant [nan(0x12345)]\n  return", "is not a value of dtype float16");
  fails("graph g():\n  %c = constant [1]\n  return", "a constant is written %name");
  fails("graph g():\n  %0: \"f32[1]\" = constant [1.0]\n  return", "constant `%0` needs a name");
  fails("graph g():\n  %c: \"f32[9223372036854775807, 3]\" = constant [1.0]\n  return", "too large");
  fails("graph g():\n  %c: \"f32[2][9223372036854775807]\" = constant [1.0, 2.0]\n  return",
        "strides of `%c` are too large");
}
