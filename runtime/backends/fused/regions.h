#pragma once
#include <triage/graph.h>

#include <unordered_set>
#include <vector>

#include "runtime/backends/fused/fusion_groups.h"

namespace triage::fused {

/// Whether some nodes belong to calls of regions (Source::region).
bool has_regions(const graph::Graph& graph);

/// Cuts each call of a region by itself, and what lies between two calls: no group reaches over the border of a call.
/// Of calls that compute alike (the same nodes of the same lines on values of the same types) the first is cut; the
/// groups of the others refer to its groups (FusionGroup::same_as). `calls`: as `cut` has them.
std::vector<FusionGroup> cut_by_regions(const graph::Graph& graph, c10::Device device,
                                        const std::unordered_set<const graph::Node*>& calls);

/// More nodes than these are not cut together: that looks at every node many times.
inline constexpr size_t most_nodes = 2000;

/// How many nodes are cut together at most.
size_t largest_cut(const graph::Graph& graph);

}  // namespace triage::fused
