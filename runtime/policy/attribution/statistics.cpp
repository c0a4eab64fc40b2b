#include <triage/statistics.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "runtime/messages/enum_names.h"

namespace triage {
namespace {

template <class Counts>
void add(Counts& to, const Counts& more) {
  std::transform(to.begin(), to.end(), more.begin(), to.begin(), std::plus<>());
}

}  // namespace

const char* to_string(Answered answered) noexcept {
  return messages::name_in<Answered::failed>({"live", "canary", "previous", "last_good", "passed_through", "failed"},
                                             answered);
}

const char* to_string(CallForm form) noexcept {
  return messages::name_in<CallForm::capture>({"none", "graph", "segments", "script", "capture"}, form);
}

const char* to_string(FailureKind kind) noexcept {
  return messages::name_in<FailureKind::other>({"policy", "limit", "graph_break", "input", "other"}, kind);
}

uint64_t CallStatistics::calls() const noexcept { return std::accumulate(latency.begin(), latency.end(), uint64_t{0}); }

uint64_t CallStatistics::answered(Answered by) const noexcept {
  const auto& forms = answers.at(static_cast<size_t>(by));
  return std::accumulate(forms.begin(), forms.end(), uint64_t{0});
}

uint64_t CallStatistics::form(CallForm of) const noexcept {
  uint64_t sum = 0;
  for (const auto& forms : answers) sum += forms.at(static_cast<size_t>(of));
  return sum;
}

std::chrono::nanoseconds CallStatistics::latency_quantile(double share) const noexcept {
  const uint64_t all = calls();
  if (all == 0) return std::chrono::nanoseconds{0};
  const auto wanted = static_cast<uint64_t>(std::ceil(std::clamp(share, 0.0, 1.0) * static_cast<double>(all)));
  uint64_t seen = 0;
  for (size_t bucket = 0; bucket < latency.size(); ++bucket) {
    seen += latency[bucket];
    if (seen >= std::max<uint64_t>(1, wanted)) return latency_bound(bucket);
  }
  return latency_bound(latency.size() - 1);
}

CallStatistics& CallStatistics::operator+=(const CallStatistics& other) {
  for (size_t by = 0; by < answers.size(); ++by) add(answers[by], other.answers[by]);
  add(failures, other.failures);
  add(latency, other.latency);
  time += other.time;
  samples += other.samples;
  flagged += other.flagged;
  repaired += other.repaired;
  full += other.full;
  uncounted += other.uncounted;
  for (const ViolationCount& more : other.violations) {
    const auto known = std::find_if(violations.begin(), violations.end(),
                                    [&](const ViolationCount& one) { return one.output == more.output; });
    if (known == violations.end())
      violations.push_back(more);
    else
      known->samples += more.samples;
  }
  recompiles += other.recompiles;
  graph_breaks += other.graph_breaks;
  std::map<std::tuple<int64_t, Code, std::string, Severity>, uint64_t> kinds;
  for (const std::vector<FlagCount>& counts : {flags, other.flags})
    for (const FlagCount& count : counts)
      kinds[{count.location, count.code, count.code_name, count.severity}] += count.count;
  flags.clear();
  for (const auto& [kind, count] : kinds)
    flags.push_back({std::get<0>(kind), std::get<1>(kind), std::get<3>(kind), count, std::get<2>(kind)});
  return *this;
}

}  // namespace triage
