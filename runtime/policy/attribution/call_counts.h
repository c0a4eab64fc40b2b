#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runtime/capture/compiled.h"
#include "runtime/policy/attribution/counters.h"

namespace triage::policy {

/// What the versions of one policy have counted. A version's counts outlive it: its calls may end after it was
/// replaced. Not thread-safe: the policy's mutex guards it.
class CallCounts {
 public:
  void add(int number, const std::string& hash, std::shared_ptr<const Counters> counters,
           std::shared_ptr<const capture::CompileCounts> compile_counts);
  /// Sets `total` and `versions`.
  void read(PolicyStatistics& statistics);

 private:
  struct CountedVersion {
    int number;
    std::string hash;
    std::shared_ptr<const Counters> counters;
    std::shared_ptr<const capture::CompileCounts> compile_counts;
    CallStatistics read() const;
  };
  void forget_ended();

  std::vector<CountedVersion> counted_;  // those that still count, oldest first
  CallStatistics gone_;                  // of those that do not
};

}  // namespace triage::policy
