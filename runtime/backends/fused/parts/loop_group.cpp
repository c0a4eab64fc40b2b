#include "runtime/backends/fused/parts/loop_group.h"

#include <utility>

#include "runtime/backends/fused/loops/groups_text.h"

namespace triage::fused {

LoopGroup::LoopGroup(const FusionGroup& part, CompilerMode compiler, std::unique_ptr<Executable> interpreter)
    : graph_(part.graph.name()),
      label_(label_of(part)),
      loops_(part.loops),
      compiler_(compiler),
      operators_(part.graph.nodes().size()),
      interpreter_(std::move(interpreter)) {}

}  // namespace triage::fused
