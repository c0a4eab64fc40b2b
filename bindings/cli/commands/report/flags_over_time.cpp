#include "bindings/cli/commands/report/flags_over_time.h"

#include <algorithm>
#include <cmath>

namespace triage::cli {
namespace {

constexpr int64_t most_steps = 240;
constexpr size_t most_places = 2'000, most_series = 12;

}  // namespace

void FlagsOverTime::TimeStep::add(const TimeStep& other) {
  calls += other.calls;
  samples += other.samples;
  for (const auto& [place, count] : other.counts)
    if (counts.size() < most_places || counts.count(place)) counts[place] += count;
}

void FlagsOverTime::add(double time, int64_t calls, int64_t samples,
                        const std::vector<std::pair<LocationAndCode, int64_t>>& counts) {
  TimeStep step{calls, samples, {}};
  for (const auto& [place, count] : counts) {
    step.counts[place] += count;
    flags_ += count;
  }
  steps_[static_cast<int64_t>(std::floor(time / width_))].add(step);
  while (steps_.rbegin()->first - steps_.begin()->first >= most_steps) widen();
}

void FlagsOverTime::widen() {
  std::map<int64_t, TimeStep> wider;
  for (const auto& [number, step] : steps_) wider[number >> 1].add(step);
  steps_ = std::move(wider);
  width_ *= 2;
}

nlohmann::ordered_json FlagsOverTime::json() const {
  using Json = nlohmann::ordered_json;
  const int64_t first = steps_.begin()->first;
  const auto size = static_cast<size_t>(steps_.rbegin()->first - first + 1);
  std::vector<int64_t> calls(size), samples(size);
  std::map<LocationAndCode, int64_t> totals;
  for (const auto& [number, step] : steps_) {
    calls[static_cast<size_t>(number - first)] = step.calls;
    samples[static_cast<size_t>(number - first)] = step.samples;
    for (const auto& [place, count] : step.counts) totals[place] += count;
  }
  std::vector<std::pair<LocationAndCode, int64_t>> order(totals.begin(), totals.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  Json series = Json::array();
  std::vector<int64_t> others(size);
  int64_t others_total = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    std::vector<int64_t> counts(size);
    for (const auto& [number, step] : steps_)
      if (const auto found = step.counts.find(order[i].first); found != step.counts.end())
        (i < most_series ? counts : others)[static_cast<size_t>(number - first)] += found->second;
    if (i < most_series)
      series.push_back({{"location", order[i].first.first},
                        {"code", order[i].first.second},
                        {"total", order[i].second},
                        {"counts", counts}});
    else
      others_total += order[i].second;
  }
  if (others_total > 0)
    series.push_back({{"location", "other locations"}, {"code", ""}, {"total", others_total}, {"counts", others}});
  return {{"begin", static_cast<double>(first) * width_},
          {"step", width_},
          {"calls", calls},
          {"samples", samples},
          {"series", series}};
}

}  // namespace triage::cli
