#pragma once
#include <triage/graph.h>

#include <concepts>
#include <type_traits>
#include <unordered_map>

#include "runtime/graph/visits.h"

/// What passes share: walking and replacing the values that nodes use.
namespace triage::graph {

/// Calls `visit(Value*&)`, or `visit(Value*)` for a const operand or node, for every value in it, lists included.
template <typename OperandType, typename Visit>
requires std::same_as<std::remove_const_t<OperandType>, Operand>
void for_each_use(OperandType& operand, const Visit& visit) {
  count_visits();
  if (auto* value = std::get_if<Value*>(&operand.data)) visit(*value);
  if (auto* items = std::get_if<std::vector<Operand>>(&operand.data))
    for (auto& item : *items) for_each_use(item, visit);
}

template <typename NodeType, typename Visit>
requires std::same_as<std::remove_const_t<NodeType>, Node>
void for_each_use(NodeType& node, const Visit& visit) {
  for (auto& operand : node.operands) for_each_use(operand, visit);
}

using Replacements = std::unordered_map<const Value*, Value*>;

/// Puts the replacement in the place of every use, outputs included.
void replace_uses(Graph& graph, const Replacements& replacements);

/// Operators whose results hold whatever was in memory: equal calls do not give equal values.
bool is_uninitialized(const c10::OperatorHandle& op);

/// Whether a call keeps its place among others of its kind, whoever uses its results: it draws, has an effect, or may
/// raise.
bool has_order(const Node& node);

/// Whether a call may draw random numbers: dropout that hands its argument back (p = 0, or no training) draws none.
bool draws(const Node& node);

/// Whether equal calls give equal values, and nobody can tell how often there was one.
bool computes_only(const c10::OperatorHandle& op);

/// Whether the result of a call is its argument in another form, in the same memory.
bool is_view(const c10::OperatorHandle& op);

}  // namespace triage::graph
