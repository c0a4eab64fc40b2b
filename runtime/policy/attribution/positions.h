#pragma once
#include <triage/front_end.h>
#include <triage/positions.h>

#include <vector>

namespace triage::policy {

/// Moves them out of the end of what a script or its graph returned (Script::call), where nothing stays in their place.
std::vector<FirstPositions> take_positions(const Signature& signature, std::vector<at::Tensor>& outputs);

}  // namespace triage::policy
