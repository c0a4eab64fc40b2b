#include "runtime/policy/candidates/candidate.h"

#include "runtime/files/checksum.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <algorithm>
#include <cmath>

namespace triage::policy {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

void check_share(double share) {
  if (share > 0 && share <= 1) return;
  throw InputError(
      fmt::format("the share of a candidate is {:g}; give a number above 0 and at most 1, such as 0.05", share));
}

void check_ratio(const char* name, double ratio) {
  if (ratio == 0 || (ratio >= 1 && std::isfinite(ratio))) return;
  throw InputError(fmt::format("RevertIf::{} is {:g}; give 0 (no such rule), or at least 1", name, ratio));
}

CandidateSide side_of(const SideNumbers& numbers) {
  CandidateSide side;
  side.calls = numbers.calls;
  side.samples = numbers.samples;
  side.flagged = numbers.flagged;
  side.p50 = numbers.latency.quantile(0.5);
  side.p90 = numbers.latency.quantile(0.9);
  side.p99 = numbers.latency.quantile(0.99);
  return side;
}

std::vector<std::string> notes_on(const Candidate& candidate, const CanaryMeasurements& measured,
                                  const ShadowReport& shadow) {
  if (candidate.kind == CandidateKind::canary) return unchecked_rules(measured, candidate.canary);
  std::vector<std::string> notes;
  if (shadow.compared == 0 && shadow.not_comparable > 0)
    notes.push_back(fmt::format("no call could be compared: {}", shadow.why_not));
  else if (shadow.compared == 0 && shadow.failed == 0)
    notes.emplace_back("no call was compared yet");
  return notes;
}

}  // namespace

uint64_t Side::note(const std::optional<std::chrono::nanoseconds>& time,
                    const std::optional<Counters::Flagged>& flagged) noexcept {
  if (time) latency_.note(*time);
  if (flagged) note_samples(*flagged);
  return calls_.fetch_add(1, relaxed) + 1;
}

void Side::note_samples(const Counters::Flagged& counted) noexcept {
  const uint64_t samples = counted.samples, found = counted.flagged;
  samples_.fetch_add(samples, relaxed);
  samples_squared_.fetch_add(samples * samples, relaxed);
  if (!found) return;
  flagged_.fetch_add(found, relaxed);
  flagged_squared_.fetch_add(found * found, relaxed);
  flagged_by_samples_.fetch_add(found * samples, relaxed);
}

SideNumbers Side::read() const noexcept {
  return {calls(), samples_.load(relaxed), flagged_.load(relaxed), latency_.read()};
}

/// Samples of one batch often go bad together. The variance of a share that was taken from whole calls, against that of
/// as many samples one by one.
double Side::spread() const noexcept {
  const auto samples = static_cast<double>(samples_.load(relaxed));
  const auto flagged = static_cast<double>(flagged_.load(relaxed));
  if (samples == 0 || flagged == 0 || flagged >= samples) return 1;
  const double share = flagged / samples;
  const double squares = static_cast<double>(flagged_squared_.load(relaxed)) -
                         2 * share * static_cast<double>(flagged_by_samples_.load(relaxed)) +
                         share * share * static_cast<double>(samples_squared_.load(relaxed));
  return std::max(1.0, squares / (samples * share * (1 - share)));
}

void Comparison::not_comparable(const std::string& why) {
  not_comparable_.fetch_add(1, relaxed);
  const std::lock_guard lock(texts_);
  why_not_ = why;
}

ShadowReport Comparison::shadow() const {
  ShadowReport report;
  {
    const std::lock_guard lock(mutex_);
    report = shadow_;
  }
  report.dropped = dropped.load(relaxed);
  report.not_comparable = not_comparable_.load(relaxed);
  const std::lock_guard lock(texts_);
  report.why_not = why_not_;
  return report;
}

void Comparison::note_failure(const std::string& message) {
  const std::lock_guard lock(texts_);
  last_failure_ = message;
}

std::string Comparison::last_failure() const {
  const std::lock_guard lock(texts_);
  return last_failure_;
}

CanaryMeasurements Comparison::measure() const {
  return {live.read(), candidate.read(), failures.load(relaxed), candidate.spread(), live_version};
}

Candidate::Candidate(std::weak_ptr<PolicyCore> owner, std::shared_ptr<PolicyVersion> of, ShadowOptions options,
                     const RuntimeOptions& of_runtime)
    : policy(std::move(owner)),
      version(std::move(of)),
      kind(CandidateKind::shadow),
      shadow(options),
      share(options.share),
      own_state(of_runtime.state_keys, of_runtime.state_age),
      calls_(share, files::checksum(version->contents.source)) {}

Candidate::Candidate(std::weak_ptr<PolicyCore> owner, std::shared_ptr<PolicyVersion> of, CanaryOptions options,
                     const RuntimeOptions& of_runtime)
    : policy(std::move(owner)),
      version(std::move(of)),
      kind(CandidateKind::canary),
      canary(std::move(options)),
      share(canary.share),
      own_state(of_runtime.state_keys, of_runtime.state_age),
      calls_(share, files::checksum(version->contents.source)) {}

bool Candidate::decide(CandidateState end) noexcept {
  CandidateState running = CandidateState::running;
  return state_.compare_exchange_strong(running, end, std::memory_order_acq_rel);
}

void check_options(const ShadowOptions& options) {
  check_share(options.share);
  if (!(options.tolerance >= 0))
    throw InputError(fmt::format("ShadowOptions::tolerance is {:g}; give 0 or more", options.tolerance));
  if (options.queue == 0)
    throw InputError("ShadowOptions::queue is 0, so that no call would ever be compared; give 1 or more");
}

void check_options(const CanaryOptions& options) {
  check_share(options.share);
  check_ratio("flagged_ratio", options.revert_if.flagged_ratio);
  check_ratio("p99_ratio", options.revert_if.p99_ratio);
}

CandidateReport report_of(const Candidate& candidate, const Comparison& comparison, const std::string& policy,
                          const std::string& reason) {
  const CanaryMeasurements measured = comparison.measure();
  CandidateReport report;
  report.kind = candidate.kind;
  report.state = candidate.state();
  report.policy = policy;
  report.path = candidate.version->path;
  report.version = candidate.version->number;
  report.hash = candidate.version->hash;
  report.live_version = comparison.live_version;
  report.live_hash = comparison.live_hash;
  report.share = candidate.share;
  report.promote_after = candidate.kind == CandidateKind::canary ? candidate.canary.promote_after : 0;
  report.since = candidate.since;
  report.restarts = candidate.restarts;
  report.reason = reason;
  report.last_failure = comparison.last_failure();
  if (candidate.kind == CandidateKind::shadow) report.shadow = comparison.shadow();
  report.notes = notes_on(candidate, measured, report.shadow);
  report.live = side_of(measured.live);
  report.candidate = side_of(measured.candidate);
  report.candidate.failures = candidate.kind == CandidateKind::canary ? measured.failures : report.shadow.failed;
  return report;
}

}  // namespace triage::policy
