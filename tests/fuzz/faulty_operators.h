#pragma once
#include "tests/fuzz/operators/call.h"

#include <string>

/// Operators made to be caught: triage_fuzz::crashes(Tensor self) -> Tensor and the like.
namespace triage::fuzz {

/// A target whose contract takes everything, with room for `bytes`.
Target faulty_target(const std::string& name, int64_t bytes = 1 << 20);

}  // namespace triage::fuzz
