#pragma once
#include <triage/graph.h>

namespace triage::graph {

/// The part of `verify` that concerns one call alone: operands and results match the schema.
void verify_call(const Node& node);

}  // namespace triage::graph
