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

/// Draws samples from those that are there (other scales, special values, numbers of the script, parts of two samples),
/// and keeps those of which something holds that no sample had before, alone or together with another such fact
/// (facts.h); with those at the edges of comparisons. Samples with which the policy raises are kept, too.
TriedSamples search_samples(IsolationSubject& subject, const std::vector<IsolationInput>& inputs,
                            const TriedSamples& samples, const SearchOptions& options);

}  // namespace triage::diagnose
