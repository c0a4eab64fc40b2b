#include "runtime/policy/candidates/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace triage::policy {
namespace {

/// The rules are looked at again and again: with four standard errors, a candidate that is as good as the live version
/// is taken back in about one of a thousand comparisons of some hundred looks.
constexpr double most_errors = 4;
/// Of calls that may be slower than the 99th percentile.
constexpr double slow_share = 0.01;
/// What is slower by less says nothing: a version that gets few of the calls finds its code and its tensors out of the
/// caches.
constexpr double least_delay = 20'000;  // ns

double ratio(uint64_t part, uint64_t of) { return of ? static_cast<double>(part) / static_cast<double>(of) : 0; }

std::optional<std::string> too_few_samples(const CanaryMeasurements& measured, const CanaryOptions& options) {
  const uint64_t calls = std::min(measured.live.calls, measured.candidate.calls);
  const uint64_t samples = std::min(measured.live.samples, measured.candidate.samples);
  if (calls >= options.min_calls && samples >= options.min_samples && samples > 0) return std::nullopt;
  return fmt::format(
      "flagged_ratio was not checked: it needs {} calls and {} counted samples of each side, and there were {} and {}",
      options.min_calls, options.min_samples, calls, samples);
}

std::optional<std::string> too_few_times(const CanaryMeasurements& measured, const CanaryOptions& options) {
  const uint64_t calls = std::min(measured.live.latency.total, measured.candidate.latency.total);
  if (calls >= options.min_calls && calls > 0) return std::nullopt;
  return fmt::format("p99_ratio was not checked: it needs {} timed calls of each side, and there were {}",
                     options.min_calls, calls);
}

/// Half a flagged sample is added to the live side: where it has none, one of the candidate is no infinite ratio.
std::optional<std::string> flags_too_often(const CanaryMeasurements& measured, double bound) {
  const auto live_samples = static_cast<double>(measured.live.samples),
             samples = static_cast<double>(measured.candidate.samples);
  const double live = (static_cast<double>(measured.live.flagged) + 0.5) / (live_samples + 1);
  const double candidate = static_cast<double>(measured.candidate.flagged) / samples;
  const double variance =
      measured.spread * (candidate * (1 - candidate) / samples + bound * bound * live * (1 - live) / live_samples);
  if (candidate - bound * live <= most_errors * std::sqrt(variance)) return std::nullopt;
  return fmt::format(
      "flagged_ratio: the candidate flagged {} of {} samples ({:.3g} %), version {} flagged {} of {} ({:.3g} %); that "
      "is "
      "more than {:g} times as many",
      measured.candidate.flagged, measured.candidate.samples, 100 * candidate, measured.live_version,
      measured.live.flagged, measured.live.samples, 100 * ratio(measured.live.flagged, measured.live.samples), bound);
}

std::optional<std::string> too_slow(const CanaryMeasurements& measured, double bound) {
  const Latency::LatencyHistogram &live = measured.live.latency, &candidate = measured.candidate.latency;
  const auto usual = static_cast<double>(live.quantile(1 - slow_share).count());
  const double most = std::max(usual * bound, usual + least_delay);
  const uint64_t slow = candidate.beyond(Latency::Time{static_cast<int64_t>(most)});
  const double error = std::sqrt(slow_share * (1 - slow_share) *
                                 (1 / static_cast<double>(live.total) + 1 / static_cast<double>(candidate.total)));
  if (ratio(slow, candidate.total) <= slow_share + most_errors * error) return std::nullopt;
  const auto us = [](const Latency::LatencyHistogram& counts) {
    return static_cast<double>(counts.quantile(1 - slow_share).count()) / 1000;
  };
  return fmt::format(
      "p99_ratio: 99 % of the candidate's {} calls took at most {:.3g} us, those of version {} at most {:.3g} us ({} "
      "calls); {} calls of the candidate took more than {:.3g} us",
      candidate.total, us(candidate), measured.live_version, us(live), live.total, slow, most / 1000);
}

}  // namespace

std::optional<std::string> broken_rule(const CanaryMeasurements& measured, const CanaryOptions& options) {
  const RevertIf& rules = options.revert_if;
  if (rules.failures > 0 && measured.failures >= rules.failures)
    return fmt::format("failures: the candidate failed {} call{}, and version {} answered {}; the limit is {}",
                       measured.failures, measured.failures == 1 ? "" : "s", measured.live_version,
                       measured.failures == 1 ? "it" : "them", rules.failures);
  if (rules.flagged_ratio > 0 && !too_few_samples(measured, options))
    if (auto broken = flags_too_often(measured, rules.flagged_ratio)) return broken;
  if (rules.p99_ratio > 0 && !too_few_times(measured, options)) return too_slow(measured, rules.p99_ratio);
  return std::nullopt;
}

std::vector<std::string> unchecked_rules(const CanaryMeasurements& measured, const CanaryOptions& options) {
  std::vector<std::string> sentences;
  if (options.revert_if.flagged_ratio > 0)
    if (auto few = too_few_samples(measured, options)) sentences.push_back(std::move(*few));
  if (options.revert_if.p99_ratio > 0)
    if (auto few = too_few_times(measured, options)) sentences.push_back(std::move(*few));
  return sentences;
}

}  // namespace triage::policy
