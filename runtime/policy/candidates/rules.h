#pragma once
#include "runtime/policy/candidates/latency.h"

#include <triage/candidate.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace triage::policy {

/// What one side has counted.
struct SideNumbers {
  uint64_t calls = 0, samples = 0, flagged = 0;
  Latency::LatencyHistogram latency;
};

/// What a canary is judged by.
struct CanaryMeasurements {
  SideNumbers live, candidate;
  uint64_t failures = 0;
  /// By how much the flagged samples vary from call to call, against samples that are independent of each other: at
  /// least 1.
  double spread = 1;
  int live_version = 0;
};

/// The rule that is broken, as a sentence with its figures; nothing where none is.
std::optional<std::string> broken_rule(const CanaryMeasurements& measured, const CanaryOptions& options);

/// Sentences on rules that nothing can be said of yet.
std::vector<std::string> unchecked_rules(const CanaryMeasurements& measured, const CanaryOptions& options);

}  // namespace triage::policy
