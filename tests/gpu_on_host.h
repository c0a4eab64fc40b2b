#pragma once
#include "runtime/backends/fused/gpu/accelerator.h"

namespace triage::test {

/// Loops for a GPU, compiled for the CPU: one thread has a row, and all lanes. What is written for them is tested so
/// where there is no GPU; what threads do together is not.
const fused::Accelerator& gpu_on_host();

}  // namespace triage::test
