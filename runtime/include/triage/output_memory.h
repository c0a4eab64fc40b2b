#pragma once
#include <triage/api.h>

#include <cstddef>

namespace triage {

/// Compiled graphs (backend `fused`) keep the memory of outputs of 4 kB and more, and of values between their parts. A
/// later call reuses it when nobody holds it any more, so warm calls take no fresh pages (docs/backends.md, Memory). A
/// graph keeps up to four buffers an output, until a call of another size comes or the policy is gone. Both functions
/// cover the whole process. Any thread may call them at any time, also while policies run.

/// The bytes kept, whether or not a host holds them as outputs now. For metrics: it costs next to nothing and does not
/// slow down calls. An output that a host has resized counts as it was.
TRIAGE_API size_t kept_output_memory();
/// Frees the memory that nobody holds, for hosts that will be idle; the next calls take fresh memory. Returns the
/// number of bytes.
TRIAGE_API size_t free_idle_output_memory();

}  // namespace triage
