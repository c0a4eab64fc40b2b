// `triage incident`: what changed, who is affected and what to do, by a decision log.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/error.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bindings/cli/commands.h"
#include "bindings/cli/commands/decisions/decision_files.h"
#include "bindings/cli/commands/decisions/decision_filter.h"
#include "bindings/cli/commands/incident/incident_report.h"
#include "bindings/cli/commands/incident/incident_text.h"
#include "bindings/cli/commands/report/page.h"
#include "bindings/cli/terminal.h"
#include "runtime/files/disk.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

/// This one, and those of the logs.
std::vector<std::string> folders_of(const std::vector<std::string>& files) {
  std::vector<std::string> folders = {"."};
  for (const std::string& file : files) folders.push_back(std::filesystem::path(file).parent_path().string());
  return folders;
}

/// All that the log tells, by policy.
class Incident {
 public:
  explicit Incident(const IncidentCommand& options) : options_(options), times_(options.since, options.until) {}

  void add(const Json& line) {
    const std::string time = field(line, "time");
    const bool counts = times_.has(time);
    if (times_.is_past(time)) return;
    if (line.contains("dropped")) {
      if (counts) dropped_ += count_in(line, "dropped");
      return;
    }
    const bool is_event = line.contains("event");
    lines_ += !is_event;
    if (counts) {
      first_ = first_.empty() ? time : std::min(first_, time);
      last_ = std::max(last_, time);
      ++(is_event ? events_ : decisions_);
    }
    for (PolicyIncident* policy : policies_of(line)) {
      if (is_event)
        policy->add_event(line, counts, is_whole());
      else
        policy->add_call(line, counts, is_whole(), options_.ids);
    }
  }

  Json report(const DecisionFiles& files) const {
    const SourceTexts texts(options_.cache);
    const LogSources sources{texts, is_whole(), folders_of(options_.files)};
    Json policies = Json::array(), notes = Json::array();
    for (const auto& [name, policy] : policies_)
      if (options_.policy.empty() || name == options_.policy)
        policies.push_back(report_of(*policy, sources, options_.ids));
    if (!texts.trouble().empty()) notes.push_back(texts.trouble());
    return {{"first", first_.empty() ? Json() : Json(first_)},
            {"last", last_.empty() ? Json() : Json(last_)},
            {"decisions", decisions_},
            {"events", events_},
            {"dropped", dropped_},
            {"damaged", damaged_json(files)},
            {"notes", std::move(notes)},
            {"policies", std::move(policies)}};
  }

  /// Why there is nothing to report; empty: there is something.
  std::string why_nothing() const {
    if (!options_.policy.empty() && !policies_.count(options_.policy)) {
      std::vector<std::string> names;
      for (const auto& [name, policy] : policies_) names.push_back(name);
      return fmt::format("the log has no policy \"{}\"; it has {}", options_.policy,
                         names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
    }
    if (decisions_ > 0 || events_ > 0) return "";
    return times_.is_bounded() && (lines_ > 0 || !policies_.empty()) ? "the log has no line of this time"
                                                                     : "the log is empty";
  }

 private:
  bool is_whole() const { return !times_.is_bounded(); }

  /// What is told of a bundle concerns each of its policies.
  std::vector<PolicyIncident*> policies_of(const Json& line) {
    const std::string name = field(line, "policy"), bundle = field(line, "bundle");
    std::vector<PolicyIncident*> found;
    if (name.empty() && !bundle.empty())
      for (const auto& [key, policy] : policies_)
        if (policy->bundle() == bundle) found.push_back(policy.get());
    if (!found.empty()) return found;
    const std::string& key = name.empty() ? bundle : name;
    auto& policy = policies_[key];
    if (!policy) policy = std::make_unique<PolicyIncident>(key);
    return {policy.get()};
  }

  const IncidentCommand& options_;
  const TimeSpan times_;
  std::map<std::string, std::unique_ptr<PolicyIncident>> policies_;
  uint64_t lines_ = 0, decisions_ = 0, events_ = 0, dropped_ = 0;
  std::string first_, last_;
};

void write_page(const std::string& path, const Json& report) {
  const std::string page = page_with("triage incident", "incident.js", report);
  files::OutputFile file(path);
  file.write(page.data(), page.size());
  file.commit();
}

}  // namespace

int run(const IncidentCommand& options) {
  Incident incident(options);
  const DecisionFiles files = open_decision_files("triage incident", options.files);
  for (const auto& file : files)
    while (const std::optional<Json> line = file->next()) incident.add(*line);
  const Json report = incident.report(files);
  if (!options.html.empty()) write_page(options.html, report);
  if (options.json)
    print_json(report);
  else
    print_incident(report, incident.why_nothing());
  if (!options.html.empty() && !options.json) say("\npage written to {}\n", options.html);
  if (options.json && !incident.why_nothing().empty()) say(stderr, "triage incident: {}\n", incident.why_nothing());
  return 0;
}

}  // namespace triage::cli
