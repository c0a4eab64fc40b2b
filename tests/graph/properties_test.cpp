#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "tests/graph/random_graph.h"

using namespace triage;
using namespace triage::graph;
using namespace triage::test;

namespace {

bool same_results(const Graph& a, const Graph& b, int64_t rows) {
  std::vector<at::Tensor> inputs = random_inputs(a, rows);
  auto x = run(a, inputs), y = run(b, inputs);
  if (x.size() != y.size()) return false;
  for (size_t i = 0; i < x.size(); ++i)
    if (!same_bits(x[i], y[i])) return false;
  return true;
}

}  // namespace

TEST_CASE("random graphs: text goes round, and the parsed graph computes the same") {
  CHECK(rc::check([](uint64_t seed) {
    Graph graph = random_graph(seed);
    verify(graph);
    std::string text = print(graph);
    Graph back = parse(text);
    RC_ASSERT(print(back) == text);
    RC_ASSERT(same_results(graph, back, 3));
  }));
}

TEST_CASE("random graphs: passes change no bit, at any batch size") {
  CHECK(rc::check([](uint64_t seed) {
    Graph graph = random_graph(seed);
    Graph cleaned = graph.clone();
    clean(cleaned);
    RC_ASSERT(cleaned.nodes().size() <= graph.nodes().size());
    for (int64_t rows : {0, 1, 2, 31, 32, 33}) RC_ASSERT(same_results(graph, cleaned, rows));
    std::string once = print(cleaned);
    clean(cleaned);
    RC_ASSERT(print(cleaned) == once);
  }));
}

TEST_CASE("random damage to a text gives an error or a valid graph, never anything else") {
  CHECK(rc::check([](uint64_t seed) {
    std::string text = print(random_graph(seed));
    std::mt19937_64 random(seed);
    for (int i = 0; i < 3; ++i) {
      size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text.erase(at, 1 + random() % 5);
          break;
        case 1:
          text[at] = static_cast<char>(32 + random() % 95);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 8));
          break;
      }
    }
    try {
      Graph graph = parse(text);
      verify(graph);
      RC_ASSERT(print(parse(print(graph))) == print(graph));
    } catch (const GraphError& error) {
      RC_ASSERT(contains(error.what(), "graph"));
    }
  }));
}
