#include "runtime/policy/attribution/call_counts.h"

namespace triage::policy {

CallStatistics CallCounts::CountedVersion::read() const {
  CallStatistics calls = counters->read();
  calls.recompiles = compile_counts->recompiles.load(std::memory_order_relaxed);
  calls.graph_breaks = compile_counts->graph_breaks.load(std::memory_order_relaxed);
  return calls;
}

void CallCounts::add(int number, const std::string& hash, std::shared_ptr<const Counters> counters,
                     std::shared_ptr<const capture::CompileCounts> compile_counts) {
  forget_ended();
  counted_.push_back({number, hash, std::move(counters), std::move(compile_counts)});
}

void CallCounts::forget_ended() {
  std::erase_if(counted_, [this](const CountedVersion& version) {
    if (!version.counters->ended()) return false;
    gone_ += version.read();
    return true;
  });
}

void CallCounts::read(PolicyStatistics& statistics) {
  forget_ended();
  statistics.total = gone_;
  for (const CountedVersion& version : counted_) {
    statistics.versions.push_back({version.number, version.hash, version.read()});
    statistics.total += statistics.versions.back().calls;
  }
}

}  // namespace triage::policy
