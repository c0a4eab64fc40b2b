#pragma once
#include <cstddef>

#include "runtime/messages/thread_context.h"

namespace triage::policy {

/// The stripe of counters that this thread keeps to, so that threads which read do not write to one cache line. Threads
/// share one only where there are more of them.
inline size_t thread_stripe(size_t stripes) noexcept {
  return static_cast<size_t>(messages::thread_number()) % stripes;
}

}  // namespace triage::policy
