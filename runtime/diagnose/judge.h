#pragma once
#include <ATen/core/Tensor.h>
#include <triage/graph.h>

#include <optional>
#include <string>
#include <vector>

/// Which numbers are right: float64 is the judge, and the error of `eager` the measure.
namespace triage::diagnose {

/// How far a result may be from that of float64: so many times the largest difference that `eager` has in this tensor.
inline constexpr double kErrorFactor = 10;

/// The same computation in float64.
graph::Graph in_float64(const graph::Graph& graph);
/// `inputs` of `graph` for in_float64(graph).
std::vector<at::Tensor> inputs_in_float64(const graph::Graph& graph, const std::vector<at::Tensor>& inputs);

/// What is wrong with `given`; nothing where it is as good as `eager`, times kErrorFactor. `judge` is the result in
/// float64.
std::optional<std::string> wrong_numbers(at::Tensor given, at::Tensor eager, at::Tensor judge);

}  // namespace triage::diagnose
