#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/diagnose/verify/samples.h"

namespace triage::diagnose {

struct SearchOptions {
  size_t count;  // samples drawn
  uint64_t seed;
  std::vector<double> numbers;
};

/// Draws samples from those that are there (other scales, special values, numbers of the script, halves of two
/// samples), and keeps those that take a side of a comparison that no sample took before. Samples with which the policy
/// raises are kept, too. The sides are those of values of dtype bool in recordings of `subject`.
TriedSamples search_for_sides(IsolationSubject& subject, const std::vector<IsolationInput>& inputs,
                              const TriedSamples& samples, const SearchOptions& options);

}  // namespace triage::diagnose
