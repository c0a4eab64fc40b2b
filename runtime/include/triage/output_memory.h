#pragma once
#include <cstddef>

namespace triage {

/// Outputs of 16 kB and more of compiled graphs (backend `fused`), and what the parts of a graph hand to one another, lie in
/// memory that the graph keeps: a later call gets it again when nobody holds it any more, so that warm calls take no fresh pages
/// (docs/backends.md, Memory). Up to four buffers an output are kept, until a call of another size comes or the policy is
/// gone. Both functions are for the whole process and may be called by any thread at any time, also while policies run.

/// Bytes that are kept, whether a host holds them as outputs now or not. For metrics: costs nothing, and disturbs no call. An
/// output whose storage a host has resized counts with one of its two sizes.
size_t kept_output_memory();
/// Frees what nobody holds, as a host does that will be idle for long; the next calls take fresh memory. Returns how many bytes.
size_t free_idle_output_memory();

}  // namespace triage
