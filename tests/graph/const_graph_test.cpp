// What hosts get from the runtime are const graphs: nothing that such a graph returns can change it.
#include "tests/graph/build.h"

#include <doctest/doctest.h>
#include <triage/runtime.h>

#include <type_traits>

using namespace triage;
using namespace triage::graph;

namespace {

template <class G>
concept ChangesOperands = requires(G& graph) {
  graph.nodes()[0]->operands.clear();
};
template <class G>
concept ChangesOperator = requires(G& graph, c10::OperatorHandle op) {
  graph.nodes()[0]->op = op;
};
template <class G>
concept ChangesResults = requires(G& graph) {
  graph.nodes()[0]->results.clear();
};
template <class G>
concept RemovesNodes = requires(G& graph) {
  graph.nodes().clear();
};
template <class G>
concept ChangesOutputs = requires(G& graph) {
  graph.outputs().clear();
};
template <class G>
concept EditsValues = requires(G& graph) {
  graph.edit(graph.outputs()[0]).meta.reset();
};
template <class G>
concept Appends = requires(G& graph, c10::OperatorHandle op) {
  graph.append(op, {}, 1);
};

// Ways around: through the values, which every graph hands out as pointers.
template <class G>
concept ChangesValues = requires(G& graph) {
  graph.outputs()[0]->meta.reset();
}
|| requires(G& graph) { graph.nodes()[0]->results[0]->name.clear(); }
|| requires(G& graph) { graph.nodes()[0]->operands[0].value()->is_flags = true; }
|| requires(G& graph) { graph.inputs()[0].value->name.clear(); }
|| requires(G& graph) { graph.constants()[0].value->name.clear(); };
template <class G>
concept ChangesProducers = requires(G& graph) {
  graph.outputs()[0]->producer->operands.clear();
};

template <class G>
inline constexpr bool changes = ChangesOperands<G> || ChangesOperator<G> || ChangesResults<G> || RemovesNodes<G> ||
                                ChangesOutputs<G> || EditsValues<G> || Appends<G>;

static_assert(!changes<const Graph> && !ChangesValues<const Graph> && !ChangesProducers<const Graph>);
static_assert(!changes<std::remove_reference_t<decltype(*CapturedGraph().graph)>>);
// The tests above can fail: they hold for a graph of one's own, whose values and producers change only through it.
static_assert(ChangesOperands<Graph> && ChangesOperator<Graph> && ChangesResults<Graph> && RemovesNodes<Graph>);
static_assert(ChangesOutputs<Graph> && EditsValues<Graph> && Appends<Graph>);
static_assert(!ChangesValues<Graph> && !ChangesProducers<Graph>);

}  // namespace

TEST_CASE("a copy of a const graph can be changed, and the graph stays as it was") {
  const Graph graph = parse("graph g(%x: \"f32[2]\"):\n  %1 = aten::neg(%x)\n  return %1\n");
  Graph copy = graph.clone();
  copy.edit(copy.nodes()[0]->results[0]).is_flags = true;
  copy.nodes()[0]->source = {"elsewhere.lua", 3};
  CHECK(copy.outputs()[0]->is_flags);
  CHECK(copy.outputs()[0]->producer->source.line == 3);
  CHECK_FALSE(graph.outputs()[0]->is_flags);
  CHECK(graph.nodes()[0]->source.line == 0);
}
