#pragma once
#include <triage/graph.h>

#include <string>

namespace triage::cli {

/// What the `fused` backend makes of a graph, as text: the parts that it is cut into, in their order; of each the operators, what
/// it reads and writes with sizes, and of loops over rows the body, a line a value.
std::string fused_parts_text(const graph::Graph& graph);

}  // namespace triage::cli
