#include "runtime/backends/fused/parts/loop_group.h"

#include <algorithm>
#include <utility>

#include "runtime/backends/fused/loops/groups_text.h"

namespace triage::fused {

LoopGroup::LoopGroup(const FusionGroup& part, std::unique_ptr<Executable> interpreter)
    : graph_(part.graph.name()),
      label_(label_of(part)),
      loops_(part.loops),
      operators_(part.graph.nodes().size()),
      keeps_order_(part.keeps_order),
      interpreter_(std::move(interpreter)) {}

bool LoopGroup::order_matters(at::ArrayRef<at::Tensor> inputs) const {
  return keeps_order_ && !std::all_of(inputs.begin(), inputs.end(), [](const at::Tensor& input) {
           return !input.defined() || input.dim() < 2 || input.is_contiguous();
         });
}

}  // namespace triage::fused
