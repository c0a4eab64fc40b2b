// Numbers that only a run can tell: their operators, and what is known of them.
#include "build.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <rapidcheck.h>
#include <triage/backend.h>

#include "runtime/graph/number_ops.h"
#include "runtime/symbols/table.h"

using namespace triage;
using symbols::Range;
using symbols::Relation;

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

std::vector<at::Tensor> run(const graph::Graph& graph, const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> outputs;
  find_backend("eager")(graph, inputs)->run(inputs, outputs);
  return outputs;
}

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
