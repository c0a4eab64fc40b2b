#include "runtime/backends/fused/parts/loop_group.h"

#include <algorithm>
#include <utility>

#include "runtime/backends/fused/loops/groups_text.h"
#include "runtime/backends/fused/lowering/lowering.h"
#include "runtime/graph/text/describe.h"

namespace triage::fused {
namespace {

/// Whether it counts elements in other sizes: strides decide whether they can be viewed so, or where a copy has them.
bool counts_anew(const std::string& op) {
  return is_reshape(op) && op != "aten::unsqueeze" && op != "aten::squeeze.dim";
}

}  // namespace

LoopGroup::LoopGroup(const FusionGroup& part, std::unique_ptr<Executable> interpreter)
    : graph_(part.graph.name()),
      label_(label_of(part)),
      loops_(part.loops),
      operators_(part.graph.nodes().size()),
      interpreter_(std::move(interpreter)),
      orders_(std::any_of(part.graph.nodes().begin(), part.graph.nodes().end(),
                          [](const auto& node) { return counts_anew(graph::op_name(node->op)); })) {}

bool LoopGroup::run_loops(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call,
                          StepTimes* times) const {
  if (std::all_of(inputs.begin(), inputs.end(), is_row_major)) return run_row_major(inputs, outputs, call, times);
  const auto in_aten = [&](std::vector<at::Tensor>& results) { interpreter_->run(inputs, results, {call.deadline}); };
  const std::vector<DimOrder> orders = orders_.find(inputs, in_aten);
  const bool fits = run_row_major(inputs, outputs, call, times);
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i] = in_order(outputs[i], orders.at(i));
  return fits;
}

}  // namespace triage::fused
