#pragma once
#include "tests/fuzz/operators/call.h"

#include <string>
#include <vector>

/// Calls on large inputs: what operators take there, beside what their contracts say.
namespace triage::fuzz {

struct LargeCall {
  std::string arguments;
  bool plain = false;       // all tensors are contiguous and of one dtype
  int64_t given = 0;        // bytes of the tensor arguments, 4 for an element at least
  int64_t peak = 0;         // bytes, as allocated; results included
  int64_t bound = 0;        // allocation_bound
  int64_t nanoseconds = 0;  // of the processor
  int64_t time_bound = 0;
};

/// Up to `count` calls that succeed, on inputs of 1 to 32 MiB; fewer where such arguments are hard to find, or where
/// the call would take long.
std::vector<LargeCall> large_calls(const Target& target, int64_t count, uint64_t seed);

/// How many times as much as the call takes its bound says. What is taken counts as no less than what was given: a
/// bound that is far above the few bytes of a sum, but no more than its input, refuses nothing.
double excess_of_bytes(const LargeCall& call);

/// The same for time: what was given, and what was made, counts as read once.
double excess_of_time(const LargeCall& call);

/// Whether a bound is far above what one call takes because another, of the same sizes, takes that much: where values
/// decide, or the way that this LibTorch was built to go.
bool has_wide_bound(const Target& target);

}  // namespace triage::fuzz
