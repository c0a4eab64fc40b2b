#pragma once
// How many threads a loop on a GPU has room for: its text and the host that starts it read this.
#include "runtime/backends/fused/support/joins.h"

namespace triage::fused {
inline namespace TRIAGE_SUPPORT {

inline constexpr int most_warps = 16;  // in a block of threads
inline constexpr int most_blocks = 8;  // of threads, in a cluster

}  // namespace TRIAGE_SUPPORT
}  // namespace triage::fused
