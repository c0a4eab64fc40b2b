#pragma once
#include <cstddef>

namespace triage {

/// What runs the fused loops at this moment.
struct LoopTiers {
  size_t kernels = 0;  // machine code of a GPU
  size_t tapes = 0;    // precompiled steps, on the CPU
  size_t unfused = 0;  // calls of ATen: some operation has no precompiled step, or a GPU has no kernel yet
  size_t count() const noexcept { return kernels + tapes + unfused; }
  LoopTiers& operator+=(const LoopTiers& other) noexcept {
    kernels += other.kernels;
    tapes += other.tapes;
    unfused += other.unfused;
    return *this;
  }
};

/// The graphs that a compiled function, or a version of a policy, keeps. The recompile limits (CompilerConfig) bound
/// their number: no graph is evicted for another. A compiled function drops a graph if a table or function of its
/// guards no longer exists, because no call can fit it again.
struct CacheStatistics {
  size_t graphs = 0;    // that hold a whole call
  size_t segments = 0;  // between graph breaks
  size_t retired =
      0;            // no longer used, because the script wrote to its own variables; freed with the function or version
  LoopTiers loops;  // of the graphs and segments: what runs their fused loops now
  /// Of all graphs: nodes, values and names, guards, the plans of the interpreter, and the data of tensors made during
  /// capture. Excludes tensors from outside and compiled code. Counted, not measured: without allocator overhead.
  size_t bytes = 0;
};

}  // namespace triage
