#pragma once
#include <cstddef>

namespace triage {

/// Outputs of 16 kB and more of compiled graphs (backend `fused`), and what the parts of a graph hand to one another, lie in
/// memory that the graph keeps: a later call gets it again when nobody holds it any more, so that warm calls take no fresh pages
/// (docs/backends.md, Memory). Up to four buffers an output are kept, until a call of another size comes or the policy is
/// gone. Both functions are for the whole process and may be called by any thread at any time, also while policies run.

/// Bytes that are kept and that nobody holds: what `free_idle_output_memory` would free now.
size_t idle_output_memory();
/// Frees them, as a host does that will be idle for long; the next calls take fresh memory. Returns how many bytes.
size_t free_idle_output_memory();

}  // namespace triage
