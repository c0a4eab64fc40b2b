#pragma once
#include <string>
#include <vector>

#include "runtime/backends/fused/fusion_groups.h"

namespace triage::fused {

/// The parts that a graph is cut into, in their order; of each the operators, what it reads and writes with sizes, and
/// of loops over rows the body, a line a value.
std::string text_of(const std::vector<FusionGroup>& groups);
std::string text_of(const std::vector<FusionGroup>& groups, size_t index);

/// In one line, for spans: the graph, the operators (some of many), and the script lines that they come from.
std::string label_of(const FusionGroup& group);
/// "repair.lua:3-7": of the file that the first node with a line comes from; empty where none has one.
std::string lines_of(const FusionGroup& group);

}  // namespace triage::fused
