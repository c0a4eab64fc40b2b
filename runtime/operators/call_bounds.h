#pragma once
#include <chrono>
#include <cstdint>
#include <optional>

namespace triage::operators {

/// What calls of operators are held to in graphs that are not trusted.
struct Terms {
  int64_t bytes = int64_t{4} << 30;  // what one call may take, and what results that live at once hold; 0: any number
  bool captured =
      true;  // the calls ran within their contracts once: what sizes and numbers do not change is not asked again
};

/// What bounds the call that runs on this thread. Of each kind the innermost scope that is alive sets the field and
/// puts it back.
struct CallBounds {
  const Terms* terms;                                             // Untrusted; null where what runs is trusted
  std::optional<std::chrono::steady_clock::time_point> deadline;  // Deadline
};

/// Of the thread, because autograd runs the backward half of a graph, and a function of the host runs other graphs:
/// neither is handed a CallContext.
inline thread_local constinit CallBounds call_bounds{};

}  // namespace triage::operators
