#pragma once
#include <triage/graph.h>

#include <functional>
#include <vector>

#include "runtime/graph/argument_type.h"

/// Running single calls of a graph, and how operands become the boxed arguments of an operator.
namespace triage::graph {

/// A one-element tensor as the number that the schema wants there.
c10::IValue read_number(const at::Tensor& tensor, Kind kind);

/// A constant (of a list: one element) as the operator takes it: a number in a tensor's place becomes a wrapped number,
/// which takes part in type promotion as in `x + 1`.
c10::IValue boxed_constant(const c10::IValue& constant, const ArgumentType& type);

/// Tensors for the values that a call uses.
using Lookup = std::function<at::Tensor(const Value*)>;

/// The arguments of the call, one for each of its schema.
std::vector<c10::IValue> boxed_arguments(const Node& node, const Lookup& lookup);

/// Tensors and lists of tensors one after another.
std::vector<at::Tensor> flattened(const std::vector<c10::IValue>& results);

/// Runs the call by itself. Throws what ATen throws.
std::vector<at::Tensor> evaluate(const Node& node, const Lookup& lookup);

}  // namespace triage::graph
