#pragma once
#include <triage/graph.h>

#include <string>
#include <vector>

namespace triage::fused {

/// Why a call is no loop's, and what would be, in one sentence for the author of the script: "it reduces the batch (dim
/// 0); loops reduce the other dims, as in x:sum(-1)".
std::string why_outside(const graph::Node& node);

/// The calls of a graph on the CPU that stand outside of loops, a line each: "repair.lua:4: aten::sort: ..."; empty
/// where there is none, or the types of its values are not known.
std::vector<std::string> calls_outside_loops(const graph::Graph& graph);

}  // namespace triage::fused
