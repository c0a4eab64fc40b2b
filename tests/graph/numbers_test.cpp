// Numbers that only a run can tell: their operators, and what is known of them.
#include "build.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <rapidcheck.h>
#include <triage/backend.h>

#include "runtime/graph/evaluation/number_ops.h"
#include "runtime/symbols/table.h"

#include <cmath>

using namespace triage;
using symbols::Range;
using symbols::Relation;
using test::run;

namespace {

constexpr const char* rows = R"(graph rows(%n: "i64[]", %z: "f32[3, 2]"):
  %0: "i64[]" = triage::item(%n)
  %1: "b8[]" = aten::ge.Scalar(%0, 0)
  triage::assert_scalar(%1, "n is negative")
  %2: "i64[]" = triage::size(%z, -1)
  %3: "i64[]" = aten::add.Tensor(%0, %2)
  %4: "f32[]" = aten::zeros([%3, 2])
  return %4
)";

bool holds(Relation relation, int64_t a, int64_t b) {
  switch (relation) {
    case Relation::less:
      return a < b;
    case Relation::less_equal:
      return a <= b;
    case Relation::greater:
      return a > b;
    case Relation::greater_equal:
      return a >= b;
    case Relation::equal:
      return a == b;
    default:
      return a != b;
  }
}

}  // namespace

TEST_CASE("E05: numbers of a graph are printed, parsed back, run, and put into plain ATen") {
  const graph::Graph graph = graph::parse(rows);
  CHECK(graph::print(graph) == rows);
  const graph::Graph plain = graph::decompose(graph);
  CHECK(graph::print(plain).find("triage::") == std::string::npos);
  for (int64_t n : {0, 1, 31}) {
    const std::vector<at::Tensor> inputs = {at::scalar_tensor(n, at::kLong), at::ones({3, 2})};
    CHECK(run(graph, inputs)[0].sizes() == at::IntArrayRef{n + 2, 2});
    CHECK(run(plain, inputs)[0].sizes() == at::IntArrayRef{n + 2, 2});
  }
  const std::vector<at::Tensor> negative = {at::scalar_tensor(-1, at::kLong), at::ones({3, 2})};
  std::string message;
  try {
    run(graph, negative);
  } catch (const PolicyError& error) {
    message = error.what();
  }
  CHECK(message.find("n is negative") != std::string::npos);
  CHECK_THROWS_AS(run(plain, negative), PolicyError);
}

TEST_CASE("E05: assertions narrow the range of what they compare") {
  const graph::Graph graph = graph::parse(R"(graph g(%n: "i64[]"):
  %0: "i64[]" = triage::item(%n)
  %1: "i64[]" = aten::mul.Scalar(%0, 2)
  %2: "i64[]" = aten::add.Scalar(%0, 1)
  %3: "b8[]" = aten::le.Scalar(%2, 8)
  %4: "b8[]" = aten::gt.Scalar(%0, -3)
  triage::assert_scalar(%3, "")
  triage::assert_scalar(%4, "")
  %5: "i64[]" = aten::add.Scalar(%0, 1)
  %6: "b8[]" = aten::lt.Scalar(%5, 9)
  return %1, %6
)");
  symbols::SymbolTable table;
  for (const auto& node : graph.nodes()) table.visit(*node);
  REQUIRE(!table.symbols().empty());
  CHECK(table.symbols()[0].name == "u0");
  // The sum could still wrap around when it was checked: nothing is concluded from it.
  CHECK(table.symbols()[0].range.min == -2);
  CHECK(symbols::text(table.symbols()[0].range, true) == "VR[-2, int_oo]");
}

TEST_CASE(
    "E05: of a sum with a factor, and of a quotient that is rounded, nothing is concluded from plain arithmetic") {
  const graph::Graph graph = graph::parse(R"(graph g(%n: "i64[]"):
  %0: "i64[]" = triage::item(%n)
  %1: "i64[]" = aten::add.Scalar(%0, 2)
  %2: "i64[]" = aten::add.Scalar(%0, 2, 3)
  %3: "f64[]" = aten::div.Scalar(%0, 2)
  %4: "i64[]" = aten::div.Scalar_mode(%0, 2, rounding_mode="floor")
  return %1, %2, %3, %4
)");
  symbols::SymbolTable table;
  for (const auto& node : graph.nodes()) table.visit(*node);
  CHECK(table.find(graph.outputs()[0])->text == "u0 + 2");
  CHECK(table.find(graph.outputs()[1]) == nullptr);
  CHECK(table.find(graph.outputs()[2])->text == "u0 / 2");
  CHECK(table.find(graph.outputs()[3]) == nullptr);
}

TEST_CASE("E05: functions of numbers give what <cmath> gives, and say what is wrong") {
  const graph::Graph graph = graph::parse(R"(graph g(%n: "f64[]"):
  %0: "f64[]" = triage::math(%n, "sqrt")
  %1: "f64[]" = triage::math.Scalar(%n, "pow", 0.3)
  %2: "f64[]" = triage::math.Tensor(%0, "atan2", %n)
  %3: "i64[]" = triage::math(%n, "ceil")
  return %0, %1, %2, %3
)");
  CHECK(graph::print(graph::parse(graph::print(graph))) == graph::print(graph));
  const graph::Graph plain = graph::decompose(graph);
  CHECK(graph::print(plain).find("triage::") == std::string::npos);
  rc::check("the bits of <cmath>, and in plain ATen the same but for the last ones", [&] {
    const double n = *rc::gen::inRange<int>(0, 1 << 20) / 16.0;
    const std::vector<at::Tensor> inputs = {at::scalar_tensor(n, at::kDouble)};
    const auto got = run(graph, inputs), in_aten = run(plain, inputs);
    RC_ASSERT(got[0].item<double>() == std::sqrt(n));
    RC_ASSERT(got[1].item<double>() == std::pow(n, 0.3));
    RC_ASSERT(got[2].item<double>() == std::atan2(std::sqrt(n), n));
    RC_ASSERT(got[3].item<int64_t>() == static_cast<int64_t>(std::ceil(n)));
    for (size_t i = 0; i < got.size(); ++i) {
      RC_ASSERT(in_aten[i].scalar_type() == got[i].scalar_type());
      RC_ASSERT(in_aten[i].allclose(got[i], 1e-14, 0));
    }
  });
  CHECK_THROWS_WITH_AS(run(graph, {at::scalar_tensor(1e300, at::kDouble)}),
                       doctest::Contains("ceil gives 1e+300, which does not fit an int64"), PolicyError);
}

TEST_CASE("D19: ranges of numbers that sizes make hold for every size") {
  rc::check("each result lies in the range that is known of it", [] {
    const auto number = [](int from, int to) { return *rc::gen::inRange(from, to); };
    const std::string text =
        fmt::format(R"(graph g(%z: "f32[4]"):
  %0: "i64[]" = triage::size(%z, 0)
  %1: "f64[]" = aten::to.dtype(%0, float64, False, False, None)
  %2: "f64[]" = aten::div.Scalar(%1, {})
  %3: "f64[]" = aten::add.Scalar(%2, {}, 1)
  %4: "f64[]" = aten::mul.Scalar(%3, {})
  %5: "i64[]" = triage::math(%4, "floor")
  %6: "f64[]" = triage::math(%1, "sqrt")
  %7: "i64[]" = aten::clamp_max(%0, {})
  %8: "i64[]" = aten::bitwise_and.Scalar(%7, {})
  return %2, %3, %4, %5, %6, %7, %8
)",
                    number(1, 9) / 2.0, number(-9, 9) / 4.0, number(-9, 9) / 3.0, number(0, 50), number(0, 9));
    const graph::Graph graph = graph::parse(text);
    symbols::SymbolTable table([](const graph::Value*, int64_t) { return "s0"; });
    table.add_size("s0", {0, 1000});
    for (const auto& node : graph.nodes()) table.visit(*node);
    const auto results = run(graph, {at::ones({number(0, 1001)})});
    for (size_t i = 0; i < results.size(); ++i) {
      const symbols::SymbolicExpression* expression = table.find(graph.outputs()[i]);
      RC_ASSERT(expression != nullptr);
      const Range range = table.range(*expression);
      RC_ASSERT(range.has_min() && range.has_max());
      const auto value = static_cast<symbols::Number>(results[i].item<double>());
      RC_ASSERT(range.min <= value && value <= range.max);
    }
  });
}

TEST_CASE("E03: what a range decides holds for every number in it, and refining keeps all that fit") {
  rc::check("decide and refined agree with the numbers themselves", [] {
    const auto number = [] { return *rc::gen::inRange<int64_t>(-6, 7); };
    const int64_t a0 = number(), a1 = number(), b0 = number(), b1 = number();
    const Range a{static_cast<symbols::Number>(std::min(a0, a1)), static_cast<symbols::Number>(std::max(a0, a1))};
    const Range b{static_cast<symbols::Number>(std::min(b0, b1)), static_cast<symbols::Number>(std::max(b0, b1))};
    const auto relation = static_cast<Relation>(*rc::gen::inRange(0, 6));
    const auto decided = symbols::decide(relation, a, b);
    const Range left = symbols::refined(a, relation, b, true);
    bool all = true, none = true;
    for (auto x = static_cast<int64_t>(a.min); x <= static_cast<int64_t>(a.max); ++x)
      for (auto y = static_cast<int64_t>(b.min); y <= static_cast<int64_t>(b.max); ++y) {
        const bool here = holds(relation, x, y);
        all &= here;
        none &= !here;
        if (here) RC_ASSERT(left.min <= x && x <= left.max);
      }
    if (decided) RC_ASSERT((*decided ? all : none));
    if (relation != Relation::equal && relation != Relation::not_equal) RC_ASSERT(decided.has_value() == (all || none));
    RC_ASSERT(symbols::decide(symbols::swapped(relation), b, a) == decided);
  });
}
