#include <triage/config.h>
#include <triage/error_report.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace triage {
namespace {

using Kind = std::tuple<std::string, Code, std::string, Severity>;

/// Adds what may come in any order, and twice.
std::vector<ErrorReport::Count> sorted(const std::vector<ErrorReport::Count>& counts) {
  std::map<Kind, int64_t> sums;
  for (const auto& count : counts) sums[{count.location, count.code, count.code_name, count.severity}] += count.count;
  std::vector<ErrorReport::Count> result;
  for (const auto& [kind, count] : sums)
    result.push_back({std::get<0>(kind), std::get<1>(kind), std::get<3>(kind), count, std::get<2>(kind)});
  return result;
}

}  // namespace

Severity ErrorReport::worst() const noexcept {
  Severity worst = Severity::ok;
  for (const Count& count : counts) worst = std::max(worst, count.severity);
  return worst;
}

ErrorReport& ErrorReport::operator+=(const ErrorReport& other) {
  samples += other.samples;
  flagged += other.flagged;
  dropped += other.dropped;
  std::vector<Count> both = counts;
  both.insert(both.end(), other.counts.begin(), other.counts.end());
  counts = sorted(both);
  const std::vector<Example> more = other.examples;  // `other` may be this one
  examples.insert(examples.end(), more.begin(), more.end());
  return *this;
}

std::string ErrorReport::text() const {
  std::string text = std::to_string(samples) + " samples, " + std::to_string(flagged) + " with errors";
  if (dropped) text += ", " + std::to_string(dropped) + " errors without a slot";
  if (!counts.empty()) text += ", worst " + severity_name(worst());
  for (const Count& count : counts)
    text += "\n  " + severity_name(count.severity) + " " +
            (count.code_name.empty() ? code_name(count.code) : count.code_name) + " @ " + count.location + ": " +
            std::to_string(count.count);
  for (const Example& example : examples)
    text +=
        "\n  rank " + std::to_string(example.rank) + ", sample " + std::to_string(example.sample) + ": " + example.text;
  return text;
}

}  // namespace triage
