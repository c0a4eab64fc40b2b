#pragma once
#include <triage/graph.h>

#include <string>
#include <unordered_map>

namespace triage::exporting {

/// A name for every value of the graph, each an identifier: inputs and constants their own, results that of their
/// operator
/// (`slice`, `slice_1`, `topk_values`).
using Names = std::unordered_map<const graph::Value*, std::string>;
Names names_of(const graph::Graph& graph);

}  // namespace triage::exporting
