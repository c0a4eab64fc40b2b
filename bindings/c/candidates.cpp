// Candidates: new versions of a policy beside the live one.
#include <triage/candidate.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "bindings/c/functions.h"
#include "bindings/c/handles.h"
#include "bindings/c/options.h"
#include "bindings/c/thread_context.h"

namespace triage::c {
namespace {

TriageCandidateSide told(const CandidateSide& side) {
  const auto nanoseconds = [](std::chrono::nanoseconds time) { return static_cast<uint64_t>(time.count()); };
  return {side.calls,           side.failures, side.samples, side.flagged, nanoseconds(side.p50), nanoseconds(side.p90),
          nanoseconds(side.p99)};
}

CandidateTexts texts_of(CandidateReport report) {
  CandidateTexts texts{std::move(report), {}, {}};
  texts.text = texts.report.text();
  texts.json = texts.report.json();
  return texts;
}

TriageCandidateReport told(const CandidateTexts& texts) {
  const CandidateReport& from = texts.report;
  TriageCandidateReport report{};
  report.kind = static_cast<int32_t>(from.kind);
  report.state = static_cast<int32_t>(from.state);
  report.version = from.version;
  report.live_version = from.live_version;
  report.share = from.share;
  report.restarts = from.restarts;
  report.live = told(from.live);
  report.candidate = told(from.candidate);
  report.compared = from.shadow.compared;
  report.failed = from.shadow.failed;
  report.dropped = from.shadow.dropped;
  report.not_comparable = from.shadow.not_comparable;
  report.only_live = from.shadow.only_live;
  report.only_candidate = from.shadow.only_candidate;
  report.different = from.shadow.different;
  report.different_unflagged = from.shadow.different_unflagged;
  report.max_difference = from.shadow.max_difference;
  report.reason = from.reason.c_str();
  report.last_failure = from.last_failure.c_str();
  report.text = texts.text.c_str();
  report.json = texts.json.c_str();
  return report;
}

/// For this thread, which may read its texts until its next call.
void tell(std::optional<CandidateReport> report, TriageCandidateReport& to) {
  context.candidate = report ? texts_of(std::move(*report)) : CandidateTexts{};
  fill(to, told(context.candidate));
}

ShadowOptions shadow_options(const TriageShadowOptions* options) {
  const TriageShadowOptions given = options_of(options, "options");
  ShadowOptions result;
  if (given.share != 0) result.share = given.share;
  result.queue = positive(given.queue, result.queue, "queue");
  result.queue_bytes = number(given.queue_bytes, result.queue_bytes, "queue_bytes", std::numeric_limits<size_t>::max());
  result.tolerance = given.tolerance;
  result.examples = number(given.examples, result.examples, "examples");
  return result;
}

/// An infinite one is none.
double ratio(double given, double otherwise, const char* name) {
  if (given > 0 && given < 1)
    throw Misuse(fmt::format("`options->{}` is {}; pass at least 1, 0 for the default or -1 for none", name, given));
  return std::isinf(given) && given > 0 ? 0 : number(given, otherwise, name);
}

CanaryOptions canary_options(const TriageCanaryOptions* options) {
  const TriageCanaryOptions given = options_of(options, "options");
  CanaryOptions result;
  if (given.share != 0) result.share = given.share;
  result.promote_after = number(given.promote_after, result.promote_after, "promote_after");
  RevertIf& rules = result.revert_if;
  rules.failures = number(given.failures, rules.failures, "failures");
  rules.flagged_ratio = ratio(given.flagged_ratio, rules.flagged_ratio, "flagged_ratio");
  rules.p99_ratio = ratio(given.p99_ratio, rules.p99_ratio, "p99_ratio");
  result.min_calls = positive(given.min_calls, result.min_calls, "min_calls");
  result.min_samples = positive(given.min_samples, result.min_samples, "min_samples");
  if (given.on_end)
    result.on_end = [on_end = given.on_end, user = given.user](const CandidateReport& report) {
      const CandidateTexts texts = texts_of(report);
      TriageCandidateReport ended = told(texts);
      ended.size = sizeof ended;
      const InCallback inside;
      on_end(&ended, user);
    };
  return result;
}

/// `start` gives the version of a candidate.
template <class Start>
TriageStatus begin(const char* function, TriagePolicy* policy, int32_t* number, const Start& start) noexcept {
  return guarded(function, [&] {
    if (number) *number = 0;
    const HandleUse started(policy);
    const VersionInfo version = start(*started);
    if (number) *number = version.number;
  });
}

}  // namespace

TriageStatus shadow(TriagePolicy* policy, const char* path, const TriageShadowOptions* options, int32_t* number) {
  return begin("shadow", policy, number,
               [&](Policy& live) { return live.shadow(text(path, "path"), shadow_options(options)); });
}

TriageStatus shadow_source(TriagePolicy* policy, const char* source, size_t length, const TriageShadowOptions* options,
                           int32_t* number) {
  return begin("shadow_source", policy, number, [&](Policy& live) {
    return live.shadow_source({text(source, "source").data(), length}, shadow_options(options));
  });
}

TriageStatus canary(TriagePolicy* policy, const char* path, const TriageCanaryOptions* options, int32_t* number) {
  return begin("canary", policy, number,
               [&](Policy& live) { return live.canary(text(path, "path"), canary_options(options)); });
}

TriageStatus canary_source(TriagePolicy* policy, const char* source, size_t length, const TriageCanaryOptions* options,
                           int32_t* number) {
  return begin("canary_source", policy, number, [&](Policy& live) {
    return live.canary_source({text(source, "source").data(), length}, canary_options(options));
  });
}

TriageStatus candidate(TriagePolicy* policy, TriageCandidateReport* report) {
  return guarded("candidate", [&] {
    check_size(required(report, "report", "the address of a TriageCandidateReport"), "report");
    tell(HandleUse(policy)->candidate(), *report);
  });
}

TriageStatus promote(TriagePolicy* policy) {
  return guarded("promote", [&] { HandleUse(policy)->promote(); });
}

TriageStatus end_candidate(TriagePolicy* policy, TriageCandidateReport* report) {
  return guarded("end_candidate", [&] {
    if (report) check_size(*report, "report");
    CandidateReport last = HandleUse(policy)->end_candidate();
    if (report) tell(std::move(last), *report);
  });
}

}  // namespace triage::c
