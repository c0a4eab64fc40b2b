#pragma once
#include <cstddef>

namespace triage {

/// The graphs that a compiled function, or a version of a policy, keeps. The recompile limits bound their number
/// (CompilerConfig): none is given up to make room for another. A compiled function drops those whose tables or functions
/// from outside are gone, which no call can fit again.
struct CacheStatistics {
  size_t graphs = 0;    // that hold a whole call
  size_t segments = 0;  // between graph breaks
  size_t retired =
      0;  // not used again, since the script wrote to its own variables; freed with the function or version
  /// Of all of them: nodes, values and names, guards, the plans of the interpreter, and the data of tensors that were made
  /// while the graph was captured. Not of tensors from outside, nor of compiled code. Counted, not measured: without what the
  /// allocator adds.
  size_t bytes = 0;
};

}  // namespace triage
