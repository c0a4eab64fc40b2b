#pragma once
#include <cstdint>

namespace triage::graph {

/// How often this thread has looked at an operand of a graph's node (Operand, for_each_use) or of a loop's value
/// (fused::Refs), ever. Whoever follows operands is counted without knowing of it, so a test can hold that a compile
/// looks at each value a bounded number of times, whichever pass it is that walks (tests/fused/visits_test.cpp).
inline thread_local constinit uint64_t visits = 0;

/// Throws LimitError where the deadline of this thread (runtime/backends/deadline.h) has passed.
void look_at_deadline();

/// The script that a graph was made of has no say while passes and backends work on the graph: they look at its
/// deadline here.
inline void count_visits(uint64_t count = 1) {
  constexpr uint64_t between_looks = 1024;
  const uint64_t before = visits;
  visits += count;
  if (before / between_looks != visits / between_looks) look_at_deadline();
}

}  // namespace triage::graph
