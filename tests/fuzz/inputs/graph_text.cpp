#include <triage/graph.h>

#include "tests/fuzz/inputs/targets.h"

namespace triage::fuzz {

/// What is read prints, and reads back as the same graph.
void read_graph(std::string_view text) {
  const graph::Graph graph = graph::parse(std::string(text));
  const std::string printed = graph::print(graph);
  std::string again;
  try {
    again = graph::print(graph::parse(printed));
  } catch (const Error& error) {
    throw Broken("a graph that was read prints as a text that is refused: " + std::string(error.what()) + "\n" +
                 printed);
  }
  if (again != printed) throw Broken("a graph prints as\n" + printed + "which reads back as\n" + again);
}

std::vector<std::string> graph_seeds() {
  return {
      "graph twice(%z: \"f32[2, 3]\"):\n  %0: \"f32[2, 3]\" = aten::add.Tensor(%z, %z)\n  return %0\n",
      "graph g(%z: \"f32[4, 8]\", %limit: \"f32[]\" param):\n  # p.lua:3\n  %0: \"b8[4, 8]\" = aten::isnan(%z)\n"
      "  %1: \"f32[4, 8]\" = aten::where.ScalarOther(%0, %z, 0.5)\n  %2 = aten::clamp(%1, -1.0, %limit)\n"
      "  %3, %4 = aten::max.dim(%2, 1, False)\n  return z: %2, best: %3, at: %4\n",
      "graph c():\n  %w: \"i64[3]\" = constant [1, 2, 3]\n  %n: \"f32[2]\" = constant [nan, -inf]\n"
      "  %0 = aten::cat([%w, %w], 0)\n  %1 = aten::sum.dim_IntList(%n, [0], False, dtype=float64)\n  return %0, %1\n",
  };
}

}  // namespace triage::fuzz
