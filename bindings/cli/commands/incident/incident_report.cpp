#include "bindings/cli/commands/incident/incident_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include "bindings/cli/commands/decisions/decision_filter.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

struct WordMeaning {
  const char *word, *text;
};

constexpr WordMeaning ways_to_live[] = {{"load", "it was loaded"},
                                        {"restart", "it was kept for a restart, and a start took it"},
                                        {"disk", "the file on the disk changed"},
                                        {"host", "the host gave its source"},
                                        {"promotion", "the candidate was promoted"},
                                        {"rollback", "the host rolled back to it"},
                                        {"pin", "the host pinned it"},
                                        {"failures", "the version before it failed, and was taken back"}};

std::string text_for(const std::string& word) {
  for (const auto& [name, text] : ways_to_live)
    if (word == name) return text;
  return word;
}

/// Behind a colon, where there is one.
std::string reason_of(const Json& line) {
  const std::string reason = field(line, "reason");
  return reason.empty() ? "" : ": " + reason;
}

std::string sentence_of_live(const PolicyIncident::IncidentEvent& event) {
  const std::string by = field(event.line, "by");
  const bool is_back = by == "rollback" || by == "failures";
  const std::string bundle = field(event.line, "bundle");
  return fmt::format(
      "{} {} live{}: {}{}", event.version ? event.version->title() : "a version", is_back ? "is again" : "went",
      bundle.empty() ? ""
                     : fmt::format(" with version {} of bundle '{}'", count_in(event.line, "bundle_version"), bundle),
      text_for(by), reason_of(event.line));
}

std::string sentence_of_refusal(const Json& line) {
  const std::string by = field(line, "by");
  const char* const what = by == "candidate" ? "a candidate"
                           : by == "host"    ? "a source that the host gave"
                                             : "what is on the disk";
  const uint64_t live = line.contains("version") ? count_in(line, "version") : count_in(line, "bundle_version");
  return fmt::format("{} was refused{}{}", what, live > 0 ? fmt::format(", and version {} stays live", live) : "",
                     reason_of(line));
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

/// The change of the source, or why it cannot be shown; nothing where there is no version before.
void add_diff(Json& change, const PolicyIncident& policy, const PolicyIncident::IncidentEvent& event,
              const SourceTexts& texts) {
  if (!event.version || !event.previous || event.version == event.previous) return;
  if (!event.version->hash.empty() && event.version->hash == event.previous->hash) {
    change["no_diff"] = "the source is the same";
    return;
  }
  const auto before = texts.find(event.previous->hash, event.previous->kept);
  const auto after = texts.find(event.version->hash, event.version->kept);
  for (const auto& [found, version] : {std::pair{&before, event.previous}, {&after, event.version}})
    if (!found->contents) {
      change["no_diff"] = fmt::format("the source of {} is not kept: {}", version->title(), found->trouble);
      return;
    }
  change["diff"] = diff_of(*before.contents, *after.contents, file_name(policy.path()), event.previous->title(),
                           event.version->title());
}

Json changes_of(const PolicyIncident& policy, const SourceTexts& texts) {
  Json changes = Json::array();
  for (const PolicyIncident::IncidentEvent& event : policy.events()) {
    Json change = event.line;
    change.erase("policy");
    change.erase("path");
    change["text"] = sentence_of(event);
    add_diff(change, policy, event, texts);
    changes.push_back(std::move(change));
  }
  return changes;
}

Json versions_of(const PolicyIncident& policy) {
  Json versions = Json::array();
  for (const IncidentVersion* version : policy.versions()) {
    const auto share = version->share();
    versions.push_back({{"version", version->number},
                        {"hash", version->hash},
                        {"title", version->title()},
                        {"live", version == policy.live()},
                        {"samples", version->samples()},
                        {"of", version->is_counted() ? "all calls" : "calls in the log"},
                        {"flagged", version->flagged_samples()},
                        {"repaired", version->repaired},
                        {"failed_calls", version->failed_calls},
                        {"failed_samples", version->failed_samples},
                        {"share", share ? Json(*share) : Json()},
                        {"kept", version->kept}});
  }
  return versions;
}

/// The most frequent first, each with its share of the flagged samples.
Json counts_json(const std::map<std::string, uint64_t>& counts, const char* name) {
  std::vector<std::pair<std::string, uint64_t>> order(counts.begin(), counts.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  Json list = Json::array();
  for (const auto& [key, count] : order) list.push_back({{name, key}, {"samples", count}});
  return list;
}

Json samples_json(const PolicyIncident& policy) {
  Json samples = Json::array();
  for (const auto& [time, id, decision_id, errors, done, row, version] : policy.samples())
    samples.push_back({{"time", time},
                       {"sample_id", id},
                       {"decision_id", decision_id},
                       {"sample", row},
                       {"version", version->number},
                       {"hash", version->hash},
                       {"title", version->title()},
                       {"errors", errors},
                       {"done", done}});
  return samples;
}

}  // namespace

std::string percent(double share) {
  const double hundredths = share * 100;
  if (hundredths > 0 && hundredths < 0.1) return "under 0.1 %";
  if (hundredths > 0 && hundredths < 10) return fmt::format("{:.1f} %", hundredths);
  return fmt::format("{:.0f} %", std::round(hundredths));
}

std::string sentence_of(const PolicyIncident::IncidentEvent& event) {
  const Json& line = event.line;
  const std::string kind = field(line, "event");
  const std::string version = fmt::format(
      "version {}", line.contains("version") ? count_in(line, "version") : count_in(line, "bundle_version"));
  if (kind == "live") return sentence_of_live(event);
  if (kind == "answers")
    return fmt::format("{} has the calls from here on; the log does not say how it went live",
                       event.version ? event.version->title() : version);
  if (kind == "refused") return sentence_of_refusal(line);
  if (kind == "pinned") return version + " is pinned: whatever changes on the disk, it stays live";
  if (kind == "unpinned") return "the pin has ended, and the disk is followed again";
  if (kind == "candidate_started") {
    const auto share = line.find("share");
    return fmt::format("{} is a candidate, a {} for {} of the calls", version, field(line, "kind"),
                       percent(share == line.end() ? 0 : share->get<double>()));
  }
  if (kind == "candidate_promoted") return fmt::format("the candidate, {}, was promoted{}", version, reason_of(line));
  if (kind == "candidate_reverted") return fmt::format("the candidate, {}, was reverted{}", version, reason_of(line));
  if (kind == "candidate_ended") return fmt::format("the candidate, {}, was ended{}", version, reason_of(line));
  if (kind == "violated") return fmt::format("{} left declared ranges{}", version, reason_of(line));
  if (kind == "param") {
    const std::string before = field(line, "previous_value");
    return fmt::format("param '{}' was set to {}{}", field(line, "param"), field(line, "value"),
                       before.empty() ? "" : fmt::format(" (before: {})", before));
  }
  return kind + reason_of(line);
}

Json report_of(const PolicyIncident& policy, const LogSources& sources, bool ids) {
  const IncidentVersion* const live = policy.live();
  Json report = {{"policy", policy.name()},
                 {"path", policy.path()},
                 {"bundle", policy.bundle().empty() ? Json() : Json(policy.bundle())},
                 {"live", live ? Json(live->title()) : Json()},
                 {"pinned", policy.is_pinned()},
                 {"changes", changes_of(policy, sources.texts)},
                 {"changes_left_out", policy.events_left_out()},
                 {"affected",
                  {{"calls", policy.calls()},
                   {"flagged_calls", policy.flagged_calls()},
                   {"samples", policy.flagged()},
                   {"repaired", policy.repaired()},
                   {"failed_calls", policy.failed_calls()}}},
                 {"versions", versions_of(policy)},
                 {"locations", counts_json(policy.locations(), "location")},
                 {"codes", counts_json(policy.codes(), "code")}};
  Json over_time;
  if (policy.has_steps())
    over_time = {{"versions", policy.versions_over_time().json()},
                 {"locations", policy.locations_over_time().json()},
                 {"codes", policy.codes_over_time().json()}};
  report["over_time"] = std::move(over_time);
  report["advice"] = advice_for(policy, sources);
  if (ids) report["samples"] = samples_json(policy);
  return report;
}

}  // namespace triage::cli
