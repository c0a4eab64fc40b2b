#include "runtime/graph/visits.h"

#include <triage/error.h>

#include "runtime/operators/call_bounds.h"

namespace triage::graph {

void look_at_deadline() {
  const auto& deadline = operators::call_bounds.deadline;
  if (deadline && std::chrono::steady_clock::now() >= *deadline)
    throw LimitError(
        "the call's budget of time (its deadline, or the seconds of its limits) ended before its graph was compiled; "
        "allow more time, or give the policy less to do");
}

}  // namespace triage::graph
