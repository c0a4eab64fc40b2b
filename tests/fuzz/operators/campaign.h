#pragma once
#include "tests/fuzz/operators/worker.h"

#include <iosfwd>

/// Many calls of every target, each under two fills of memory; what they showed, by target.
namespace triage::fuzz {

struct CampaignOptions {
  uint64_t seed = 1;
  int64_t first = 0, calls = 20'000;
  double hang_seconds = 2;
  int64_t least_successes = 0;  // of each target, else it is a failure of the fuzzer
  bool compare_fills = true;
  int most_deaths = 6;  // of one target, which is then left out
  std::ostream* progress = nullptr;
};

struct Finding {
  std::string kind;  // what is before the colon of the fault
  std::string fault;
  std::string arguments;
  int64_t index;
  std::string words;  // of the process that died
};

struct TargetReport {
  int64_t calls = 0, outside = 0, beyond_budget = 0, threw = 0, succeeded = 0, faults = 0;
  uint64_t slowest = 0;           // nanoseconds
  std::vector<Finding> findings;  // one of each kind
  bool left_out = false;
};

struct CampaignReport {
  std::vector<TargetReport> targets;  // in the order of the campaign's
  std::vector<std::string> too_few;   // names of those with fewer successes than asked for
  int64_t calls = 0, within = 0, succeeded = 0, faults = 0;
};

CampaignReport run_campaign(const std::vector<Target>& targets, const CampaignOptions& options);

/// Findings, and a line for each target where `table` asks for it.
void write_report(std::ostream& out, const std::vector<Target>& targets, const CampaignReport& report, bool table);

}  // namespace triage::fuzz
