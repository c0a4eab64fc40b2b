#include "runtime/capture/tensors/variables.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "runtime/graph/passes/uses.h"

namespace triage::capture {

namespace {

/// One that the graph has not yet, and which its text can be read with.
std::string name_of(const graph::Graph& graph, std::string wanted) {
  const bool plain =
      std::all_of(wanted.begin(), wanted.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  if (wanted.empty() || !plain) wanted = "v";
  std::string name = wanted;
  for (size_t i = 1; graph.has_name(name); ++i) name = wanted + "_" + std::to_string(i);
  return name;
}

}  // namespace

std::vector<size_t> lift_variables(graph::Graph& graph, const Script& script) {
  const at::ArrayRef<at::Tensor> script_variables = script.variables();
  std::vector<size_t> numbers;
  graph::Replacements inputs;
  for (const auto& constant : graph.constants()) {
    const size_t number = constant.variable ? number_among(script_variables, constant.tensor) : script_variables.size();
    if (number == script_variables.size()) continue;
    graph::Value* input =
        graph.add_input(name_of(graph, script.variable_name(number)), graph::InputKind::tensor, constant.value->meta);
    graph.edit(input).is_flags = constant.value->is_flags;
    inputs.emplace(constant.value, input);
    numbers.push_back(number);
  }
  graph::replace_uses(graph, inputs);
  graph.drop_unused_constants();
  return numbers;
}

}  // namespace triage::capture
