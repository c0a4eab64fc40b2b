#include "runtime/graph/text/graph_event.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "runtime/graph/text/describe.h"
#include "runtime/messages/debugging/trace_file.h"
#include "runtime/messages/printable.h"

namespace triage::graph {
namespace {

using messages::json_text;

std::string node_json(const Node& node) {
  const std::string result = node.results.empty() ? "" : describe(*node.results[0]);
  return fmt::format("[{},{},{},{}]", json_text(print(node)), json_text(result), json_text(node.source.file),
                     node.source.line);
}

/// What stands before the first node: inputs and constants.
std::string head_of(const Graph& graph) {
  std::string text = print(graph);
  text.pop_back();
  for (size_t line = 0; line < graph.nodes().size() + 1; ++line) text.resize(std::min(text.rfind('\n'), text.size()));
  return text;
}

std::string outputs_of(const Graph& graph) {
  std::string text;
  for (const Value* output : graph.outputs()) text += (text.empty() ? "" : ", ") + describe(*output);
  return text;
}

}  // namespace

void trace_graph(const Graph& graph, std::string_view stage) {
  messages::trace([&] {
    std::string nodes;
    for (const auto& node : graph.nodes()) nodes += (nodes.empty() ? "" : ",") + node_json(*node);
    return messages::TraceEvent("graph")
        .text("stage", stage)
        .text("name", graph.name())
        .text("head", head_of(graph))
        .json("nodes", "[" + nodes + "]")
        .text("outputs", outputs_of(graph))
        .graph(graph.name());
  });
}

}  // namespace triage::graph
