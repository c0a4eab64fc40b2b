#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace triage::cli {

/// How many flags of each location and code there were, in steps of time that become longer with the whole.
class FlagsOverTime {
 public:
  using LocationAndCode = std::pair<std::string, std::string>;  // location, code

  /// `time` in seconds.
  void add(double time, int64_t calls, int64_t samples, const std::vector<std::pair<LocationAndCode, int64_t>>& counts);
  /// {"begin", "step", "calls": [...], "samples": [...], "series": [{"location", "code", "total", "counts": [...]}]}
  nlohmann::ordered_json json() const;
  int64_t flags() const noexcept { return flags_; }

 private:
  struct TimeStep {
    int64_t calls = 0, samples = 0;
    std::map<LocationAndCode, int64_t> counts;
    void add(const TimeStep& other);
  };
  void widen();

  double width_ = 0.1;
  int64_t flags_ = 0;
  std::map<int64_t, TimeStep> steps_;  // by their number since time 0
};

}  // namespace triage::cli
