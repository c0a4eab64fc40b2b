#pragma once
#include <triage/graph.h>

#include <unordered_set>

namespace triage::fused {

/// The views of a graph that ATen makes, though loops could write them: a `view` reads them, which raises where strides
/// do not allow it, and loops write what they make without gaps. What loops compute of a view of theirs has the strides
/// that it has in ATen.
std::unordered_set<const graph::Node*> strided_views(const graph::Graph& graph);

}  // namespace triage::fused
