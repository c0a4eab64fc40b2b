#pragma once
#include <triage/graph.h>

#include <unordered_map>

/// Making one graph out of parts of another.
namespace triage::graph {

/// Which value of the new graph stands for a value of the old one.
using Copies = std::unordered_map<const Value*, Value*>;

void copy_facts(const Value& from, MutableValue& to);

/// Appends an input or constant to `into`, and notes it in `copies`. Constants stay variables where they were.
Value* copy_input(Graph& into, const Input& input, Copies& copies);
Value* copy_constant(Graph& into, const Constant& constant, Copies& copies);

/// Appends the same call to `into`; what it uses must be in `copies`, which then holds its results too.
Node* copy_node(Graph& into, const Node& node, Copies& copies);

}  // namespace triage::graph
