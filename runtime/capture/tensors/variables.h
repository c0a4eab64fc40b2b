#pragma once
#include <ATen/core/Tensor.h>
#include <triage/front_end.h>
#include <triage/graph.h>

#include <cstddef>
#include <utility>
#include <vector>

/// Tensors from outside that a script reads: weights, upvalues, globals. A graph holds them as variables, or, where the
/// script names them again before every call (Script::variables), takes them as inputs behind those of the call.
namespace triage::capture {

/// The number of the first that is the same tensor; their count where none is.
inline size_t number_among(at::ArrayRef<at::Tensor> tensors, const at::Tensor& wanted) noexcept {
  size_t number = 0;
  while (number < tensors.size() && !tensors[number].is_same(wanted)) ++number;
  return number;
}

/// Makes inputs of those variables of the graph that are the script's. Returns the number of each, in the order of the
/// new inputs.
std::vector<size_t> lift_variables(graph::Graph& graph, const Script& script);

}  // namespace triage::capture
