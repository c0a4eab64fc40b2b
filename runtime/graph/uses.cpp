#include "runtime/graph/uses.h"

#include <unordered_set>

namespace triage::graph {

void replace_uses(Graph& graph, const Replacements& replacements) {
  if (replacements.empty()) return;
  auto replace = [&](Value*& value) {
    if (auto found = replacements.find(value); found != replacements.end()) value = found->second;
  };
  for (auto& node : graph.nodes()) for_each_use(*node, replace);
  for (auto& output : graph.outputs()) replace(output);
}

bool is_uninitialized(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string> names = {"aten::empty",
                                                        "aten::empty_like",
                                                        "aten::new_empty",
                                                        "aten::empty_strided",
                                                        "aten::new_empty_strided",
                                                        "aten::empty_permuted",
                                                        "aten::empty_quantized",
                                                        "aten::_empty_affine_quantized"};
  return names.count(op.operator_name().name) != 0;
}

bool is_view(const c10::OperatorHandle& op) {
  const auto& results = op.schema().returns();
  return results.size() == 1 && results[0].alias_info() && !results[0].alias_info()->isWrite();
}

}  // namespace triage::graph
