// What a Runtime counts, in Prometheus' text format.
#include <fmt/format.h>
#include <triage/config.h>
#include <triage/decisions.h>
#include <triage/location.h>
#include <triage/runtime.h>
#include <triage/statistics.h>

#include <map>
#include <optional>
#include <utility>

#include "runtime/messages/metric.h"
#include "runtime/policy/host/runtime_core.h"
#include "runtime/policy/releases/releases.h"

namespace triage {
namespace {

using messages::label;
using messages::Metric;

/// Of one policy, or of several with the same name and path, which no label tells apart.
struct PolicyMetrics {
  PolicyStatistics statistics;
  CacheStatistics cache;
  std::map<std::pair<int, std::string>, CallStatistics> versions;
  std::map<std::pair<int, std::string>, bool> live;
  std::map<std::pair<int, std::string>, CandidateReport> candidates;  // that run
  std::optional<policy::StateCounts> state;                           // of policies that have had some
};
using Policies = std::map<std::pair<std::string, std::string>, PolicyMetrics>;

Policies measure(const Runtime& runtime) {
  Policies policies;
  for (const Policy& policy : runtime.policies()) {
    const VersionInfo live = policy.version();
    PolicyMetrics& measured = policies[{policy.name(), live.path}];
    const PolicyStatistics statistics = policy.statistics();
    measured.statistics.total += statistics.total;
    measured.statistics.reloads += statistics.reloads;
    measured.statistics.refused += statistics.refused;
    measured.statistics.reverted += statistics.reverted;
    measured.statistics.candidates += statistics.candidates;
    measured.statistics.promoted += statistics.promoted;
    measured.statistics.candidates_reverted += statistics.candidates_reverted;
    if (auto report = policy.candidate(); report && report->state == CandidateState::running)
      measured.candidates[{report->version, report->hash}] = std::move(*report);
    for (const auto& version : statistics.versions) {
      measured.versions[{version.number, version.hash}] += version.calls;
      measured.live[{version.number, version.hash}] |= version.number == live.number;
    }
    const CacheStatistics cache = policy.cache();
    measured.cache.graphs += cache.graphs;
    measured.cache.segments += cache.segments;
    measured.cache.bytes += cache.bytes;
    measured.cache.loops += cache.loops;
  }
  return policies;
}

using PerPolicy = void (*)(Metric& metric, const std::string& labels, const PolicyMetrics& measured);
struct Described {
  const char *name, *type, *help;
  PerPolicy add;
};

/// Whether a call can be answered so: a version does it in some form, or none does.
bool can_be(Answered by, CallForm form) {
  return (by == Answered::passed_through || by == Answered::failed) == (form == CallForm::none);
}

/// `also_none`: those without a call too, because Prometheus' `increase` cannot see the event that begins a series.
void add_answers(Metric& metric, const std::string& labels, const CallStatistics& calls, bool also_none) {
  for (size_t i = 0; i < answered_count; ++i)
    for (size_t j = 0; j < call_form_count; ++j) {
      const auto by = static_cast<Answered>(i);
      const auto form = static_cast<CallForm>(j);
      if (calls.answers[i][j] == 0 && !(also_none && can_be(by, form))) continue;
      metric.add(labels + ',' + label("answered", to_string(by)) + ',' + label("form", to_string(form)),
                 calls.answers[i][j]);
    }
}

template <uint64_t CallStatistics::*count>
void add_count(Metric& metric, const std::string& labels, const PolicyMetrics& measured) {
  metric.add(labels, measured.statistics.total.*count);
}

void add_failures(Metric& metric, const std::string& labels, const PolicyMetrics& measured) {
  for (size_t kind = 0; kind < failure_kind_count; ++kind)
    metric.add(labels + ',' + label("kind", to_string(static_cast<FailureKind>(kind))),
               measured.statistics.total.failures[kind]);
}

void add_latency(Metric& metric, const std::string& labels, const PolicyMetrics& measured) {
  const CallStatistics& calls = measured.statistics.total;
  uint64_t up_to = 0;
  for (size_t bucket = 0; bucket < latency_bucket_count; ++bucket) {
    up_to += calls.latency[bucket];
    const bool last = bucket + 1 == latency_bucket_count;
    const std::string bound =
        last ? "+Inf" : fmt::format("{}", static_cast<double>(latency_bound(bucket).count()) * 1e-9);
    metric.add(labels + ',' + label("le", bound), up_to, "_bucket");
  }
  metric.add(labels, static_cast<double>(calls.time.count()) * 1e-9, "_sum");
  metric.add(labels, up_to, "_count");
}

void add_errors(Metric& metric, const std::string& labels, const PolicyMetrics& measured) {
  for (const FlagCount& count : measured.statistics.total.flags)
    metric.add(labels + ',' + label("location", ErrorLocation::name(count.location)) + ',' +
                   label("code", count.code_name) + ',' + label("severity", severity_name(count.severity)),
               count.count);
}

std::string version_labels(const std::string& labels, const std::pair<int, std::string>& version) {
  return labels + ',' + label("version", std::to_string(version.first)) + ',' + label("hash", version.second);
}

template <uint64_t CallStatistics::*count>
void add_version_count(Metric& metric, const std::string& labels, const PolicyMetrics& of) {
  for (const auto& [version, calls] : of.versions) metric.add(version_labels(labels, version), calls.*count);
}

void add_violations(Metric& metric, const std::string& labels, const PolicyMetrics& of) {
  for (const auto& [version, calls] : of.versions)
    for (const ViolationCount& count : calls.violations)
      metric.add(version_labels(labels, version) + ',' + label("output", count.output), count.samples);
}

template <class Add>
void for_candidates(const std::string& labels, const PolicyMetrics& of, const Add& add) {
  for (const auto& [version, report] : of.candidates)
    add(version_labels(labels, version) + ',' + label("kind", to_string(report.kind)), report);
}

void add_shadow_calls(Metric& metric, const std::string& labels, const PolicyMetrics& of) {
  for_candidates(labels, of, [&](const std::string& all, const CandidateReport& report) {
    if (report.kind != CandidateKind::shadow) return;
    const ShadowReport& shadow = report.shadow;
    const std::pair<const char*, uint64_t> results[] = {{"compared", shadow.compared},
                                                        {"failed", shadow.failed},
                                                        {"dropped", shadow.dropped},
                                                        {"not_comparable", shadow.not_comparable}};
    for (const auto& [result, count] : results) metric.add(all + ',' + label("result", result), count);
  });
}

void add_shadow_samples(Metric& metric, const std::string& labels, const PolicyMetrics& of) {
  for_candidates(labels, of, [&](const std::string& all, const CandidateReport& report) {
    if (report.kind != CandidateKind::shadow) return;
    const ShadowReport& shadow = report.shadow;
    const std::pair<const char*, uint64_t> differences[] = {
        {"only_live", shadow.only_live}, {"only_candidate", shadow.only_candidate}, {"repaired", shadow.different}};
    for (const auto& [difference, count] : differences) metric.add(all + ',' + label("difference", difference), count);
  });
}

const Described described[] = {
    {"calls_total", "counter", "Calls, by what answered them and how.",
     [](Metric& metric, const std::string& labels, const PolicyMetrics& of) {
       add_answers(metric, labels, of.statistics.total, /*also_none=*/true);
     }},
    {"failures_total", "counter", "Calls that the live version failed, or that did not fit its signature.",
     add_failures},
    {"call_seconds", "histogram", "Time of calls.", add_latency},
    {"samples_total", "counter", "Samples whose flags were counted.", add_count<&CallStatistics::samples>},
    {"flagged_samples_total", "counter", "Samples with an error.", add_count<&CallStatistics::flagged>},
    {"repaired_samples_total", "counter", "Flagged samples for which an output differs from its input.",
     add_count<&CallStatistics::repaired>},
    {"errors_total", "counter", "Errors in samples, by location, code and severity.", add_errors},
    {"full_records_total", "counter", "Samples whose record has no free slot: later errors of theirs may be lost.",
     add_count<&CallStatistics::full>},
    {"violations_total", "counter", "Samples out of the declared range of an output, of each version that is kept.",
     add_violations},
    {"uncounted_calls_total", "counter", "Calls whose flags lie on another device and were not counted.",
     add_count<&CallStatistics::uncounted>},
    {"recompiles_total", "counter", "Calls that no captured graph fitted, after the first.",
     add_count<&CallStatistics::recompiles>},
    {"graph_breaks_total", "counter", "Graph breaks that captured and followed calls met.",
     add_count<&CallStatistics::graph_breaks>},
    {"reloads_total", "counter", "Sources that went live, were refused, or went live and were reverted.",
     [](Metric& metric, const std::string& labels, const PolicyMetrics& of) {
       metric.add(labels + ',' + label("result", "live"), of.statistics.reloads);
       metric.add(labels + ',' + label("result", "refused"), of.statistics.refused);
       metric.add(labels + ',' + label("result", "reverted"), of.statistics.reverted);
     }},
    {"version_live", "gauge", "1 for the live version, 0 for others that are kept.",
     [](Metric& metric, const std::string& labels, const PolicyMetrics& of) {
       for (const auto& [version, live] : of.live) metric.add(version_labels(labels, version), live ? 1 : 0);
     }},
    {"version_calls_total", "counter", "Calls of each version that is kept.",
     [](Metric& metric, const std::string& labels, const PolicyMetrics& of) {
       for (const auto& [version, calls] : of.versions)
         add_answers(metric, version_labels(labels, version), calls, /*also_none=*/false);
     }},
    {"version_samples_total", "counter", "Samples whose flags were counted, of each version that is kept.",
     add_version_count<&CallStatistics::samples>},
    {"version_flagged_samples_total", "counter", "Samples with an error, of each version that is kept.",
     add_version_count<&CallStatistics::flagged>},
    {"version_repaired_samples_total", "counter",
     "Flagged samples for which an output differs from its input, of each version that is kept.",
     add_version_count<&CallStatistics::repaired>},
    {"candidate", "gauge", "1 while a candidate runs beside the live version.",
     [](Metric& metric, const std::string& labels, const PolicyMetrics& of) {
       for_candidates(labels, of, [&](const std::string& all, const CandidateReport&) { metric.add(all, 1); });
     }},
    {"candidates_total", "counter", "Candidates that were started, promoted, and taken back by a rule.",
     [](Metric& metric, const std::string& labels, const PolicyMetrics& of) {
       metric.add(labels + ',' + label("event", "started"), of.statistics.candidates);
       metric.add(labels + ',' + label("event", "promoted"), of.statistics.promoted);
       metric.add(labels + ',' + label("event", "reverted"), of.statistics.candidates_reverted);
     }},
    {"shadow_calls", "gauge", "Calls of the share of a candidate in the shadow, since its comparison began.",
     add_shadow_calls},
    {"shadow_samples", "gauge", "Samples that only one version flagged, or that both repaired differently.",
     add_shadow_samples},
    {"state_keys", "gauge", "Keys for which state is kept.",
     [](Metric& metric, const std::string& labels, const PolicyMetrics& of) {
       if (of.state) metric.add(labels, of.state->keys);
     }},
    {"state_bytes", "gauge", "Memory of the tensors of this state.",
     [](Metric& metric, const std::string& labels, const PolicyMetrics& of) {
       if (of.state) metric.add(labels, of.state->bytes);
     }},
    {"state_dropped_keys_total", "counter", "Keys whose state went because there were too many.",
     [](Metric& metric, const std::string& labels, const PolicyMetrics& of) {
       if (of.state) metric.add(labels, of.state->dropped);
     }},
    {"graphs", "gauge", "Captured graphs of the live version.",
     [](Metric& metric, const std::string& labels, const PolicyMetrics& of) {
       metric.add(labels + ',' + label("kind", "whole"), of.cache.graphs);
       metric.add(labels + ',' + label("kind", "segment"), of.cache.segments);
     }},
    {"graph_bytes", "gauge", "Memory of these graphs, without compiled code.",
     [](Metric& metric, const std::string& labels, const PolicyMetrics& of) { metric.add(labels, of.cache.bytes); }},
    {"loops", "gauge", "Fused loops of these graphs, by what runs them.",
     [](Metric& metric, const std::string& labels, const PolicyMetrics& of) {
       metric.add(labels + ',' + label("tier", "kernel"), of.cache.loops.kernels);
       metric.add(labels + ',' + label("tier", "tape"), of.cache.loops.tapes);
       metric.add(labels + ',' + label("tier", "unfused"), of.cache.loops.unfused);
     }},
};

void add_decisions(std::string& text, const DecisionLog& log) {
  const DecisionCounts counts = log.counts();
  Metric metric(text, "decisions_total", "counter",
                "Decisions that the log wrote, dropped because too many waited, or failed to write.");
  metric.add(label("result", "written"), counts.written);
  metric.add(label("result", "dropped"), counts.dropped);
  metric.add(label("result", "failed"), counts.failed);
}

void measure_state(Policies& policies, policy::PolicyCore& policy) {
  const policy::StateCounts counts = policy.state().counts();
  const auto found = policies.find({policy.name(), policy.path()});
  if (found == policies.end() || (counts.keys == 0 && counts.dropped == 0)) return;
  policy::StateCounts& all = found->second.state ? *found->second.state : found->second.state.emplace();
  all.keys += counts.keys;
  all.bytes += counts.bytes;
  all.dropped += counts.dropped;
}

void add_bundles(std::string& text, const policy::RuntimeCore& runtime) {
  std::map<std::string, bool> is_live;  // a folder may be loaded twice
  for (const auto& releases : runtime.releases()) {
    if (!releases->is_bundle()) continue;
    releases->look_at([&](const policy::Releases::View& now) {
      for (const auto& release : now.history.kept())
        is_live[label("bundle", releases->log().name()) + ',' + label("path", releases->log().path()) + ',' +
                label("number", std::to_string(release->number)) + ',' + label("version", release->label) + ',' +
                label("sha256", release->sha256.substr(0, 16))] |= release.get() == &now.live;
    });
  }
  if (is_live.empty()) return;
  Metric metric(text, "bundle_live", "gauge", "1 for the live version of a bundle, 0 for others that are kept.");
  for (const auto& [labels, live] : is_live) metric.add(labels, live ? 1 : 0);
}

void add_locations(std::string& text) {
  const LocationUsage usage = ErrorLocation::usage();
  const std::pair<const char*, int64_t> states[] = {
      {"host", usage.lasting}, {"policies", usage.held}, {"gone", usage.kept}, {"free", usage.free}};
  Metric ids(text, "locations", "gauge", "Ids of locations in this process, by who holds them.");
  for (const auto& [state, count] : states) ids.add(label("held_by", state), count);
  Metric missed(text, "unnamed_locations_total", "counter",
                "New locations that got no id of their own, or one that flags of a policy which is gone may hold.");
  missed.add(label("result", "prefix"), usage.unnamed);
  missed.add(label("result", "reused"), usage.reused);
}

}  // namespace

std::string metrics_text(const Runtime& runtime) {
  Policies policies = measure(runtime);
  if (runtime.core_)
    for (const auto& releases : runtime.core_->releases())
      for (const auto& [name, policy] : releases->policies()) measure_state(policies, *policy);
  std::string text;
  for (const Described& kind : described) {
    Metric metric(text, kind.name, kind.type, kind.help);
    for (const auto& [names, measured] : policies)
      kind.add(metric, label("policy", names.first) + ',' + label("path", names.second), measured);
  }
  add_locations(text);
  if (runtime.core_) {
    add_bundles(text, *runtime.core_);
    if (runtime.core_->options().decisions) add_decisions(text, *runtime.core_->options().decisions);
  }
  return text;
}

}  // namespace triage
