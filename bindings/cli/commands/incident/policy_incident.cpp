#include "bindings/cli/commands/incident/policy_incident.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "bindings/cli/commands/decisions/decision_filter.h"

namespace triage::cli {
namespace {

constexpr size_t shown_digits = 8;

/// Of names that a log may have without end, the first ones.
void count(std::map<std::string, uint64_t>& counts, const std::string& name) {
  if (counts.size() < PolicyIncident::most_names || counts.count(name)) ++counts[name];
}

SampleCount::Totals totals_in(const nlohmann::ordered_json& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end()) return {};
  return {count_in(*found, "samples"), count_in(*found, "flagged")};
}

using Counts = std::vector<std::pair<FlagsOverTime::LocationAndCode, int64_t>>;

Counts as_counts(const std::map<std::string, int64_t>& of_names) {
  Counts counts;
  for (const auto& [name, number] : of_names) counts.push_back({{name, ""}, number});
  return counts;
}

}  // namespace

double seconds_of(const std::string& time) {
  using namespace std::chrono;
  const auto number = [&](size_t at, size_t digits) { return std::stoi(time.substr(at, digits)); };
  const year_month_day date = year(number(0, 4)) / number(5, 2) / number(8, 2);
  const sys_days day{date.ok() ? date : year_month_day(year(1970) / 1 / 1)};
  const int in_day = (number(11, 2) * 60 + number(14, 2)) * 60 + number(17, 2);
  return static_cast<double>(day.time_since_epoch().count()) * 86400.0 + in_day + number(20, 6) * 1e-6;
}

uint64_t IncidentVersion::samples() const noexcept {
  // Never fewer than the lines tell of: totals may begin anew in between.
  return is_counted() ? std::max(batch, count.samples() + unread_samples + stood_in) : batch;
}

uint64_t IncidentVersion::flagged_samples() const noexcept {
  return std::max(flagged, count.flagged() - std::min(count.flagged(), flagged_by_others));
}

std::optional<double> IncidentVersion::share() const noexcept {
  if (samples() == 0) return std::nullopt;
  return std::min(1.0, static_cast<double>(harmed()) / static_cast<double>(samples()));
}

std::string IncidentVersion::title() const {
  const size_t start = hash.starts_with("masked:") ? std::string("masked:").size() : 0;
  if (hash.empty()) return fmt::format("version {}", number);
  return fmt::format("version {} ({})", number, hash.substr(0, start + shown_digits));
}

IncidentVersion& PolicyIncident::version_of(uint64_t number, const std::string& hash) {
  const auto [found, is_new] = versions_.try_emplace({number, hash});
  if (is_new) {
    found->second.number = number;
    found->second.hash = hash;
    order_.push_back(&found->second);
    found->second.met = order_.size();
  }
  of_number_[number] = &found->second;
  return found->second;
}

void PolicyIncident::note_live(IncidentVersion& version, const Json& line) {
  version.went_live = ++lives_;
  version.of_start = starts_;
  if (const std::string kept = field(line, "kept"); !kept.empty()) version.kept = kept;
  version.bundle_version = count_in(line, "bundle_version");
  live_ = &version;
}

/// Of a version that is replaced. Where no line of its calls is there, for older files are gone, its totals say what it
/// did.
void PolicyIncident::note_end(IncidentVersion& version, const Json& line, bool counts, bool whole) {
  const SampleCount::Totals totals = totals_in(line, "previous_totals");
  if (totals.samples == 0) return;
  const bool is_new = version.calls == 0 && !version.is_counted();
  version.count.add_end(totals, counts, whole);
  if (!is_new || !counts || !whole) return;
  version.flagged += totals.flagged;
  version.repaired += count_in(line["previous_totals"], "repaired");
}

void PolicyIncident::add_event(const Json& line, bool counts, bool whole) {
  const std::string event = field(line, "event");
  IncidentEvent noted{line};
  if (const std::string path = field(line, "path"); !path.empty()) path_ = path;
  if (const std::string bundle = field(line, "bundle"); !bundle.empty()) bundle_ = bundle;
  if (event == "live") {
    has_events_ = true;
    const std::string by = field(line, "by");
    if (by == "load" || by == "restart") {
      ++starts_;
      pinned_ = false;
    }
    noted.previous = live_;
    if (line.contains("previous_version")) {
      IncidentVersion& previous = version_of(count_in(line, "previous_version"), field(line, "previous_hash"));
      note_end(previous, line, counts, whole);
      noted.previous = &previous;
    }
    IncidentVersion& version = version_of(count_in(line, "version"), field(line, "hash"));
    note_live(version, line);
    noted.version = &version;
  }
  if (event == "pinned" || event == "unpinned") pinned_ = event == "pinned";
  if (event == "candidate_started")
    version_of(count_in(line, "version"), field(line, "hash")).kept = field(line, "kept");
  if (counts) note_event(std::move(noted));
}

void PolicyIncident::note_event(IncidentEvent noted) {
  if (events_.size() == most_events) {
    events_.erase(events_.begin());
    ++events_left_out_;
  }
  // What two threads tell at once may come the other way round.
  const auto later = [](const IncidentEvent& a, const IncidentEvent& b) {
    return field(a.line, "time") < field(b.line, "time");
  };
  events_.insert(std::upper_bound(events_.begin(), events_.end(), noted, later), noted);
}

/// The version whose failure and totals the line has: where another one answered, not `version`.
IncidentVersion& PolicyIncident::called_by(const Json& line, IncidentVersion& version) {
  if (!line.contains("live_version")) return version;
  const uint64_t number = count_in(line, "live_version");
  const auto found = of_number_.find(number);
  return found == of_number_.end() ? version_of(number, "") : *found->second;
}

/// The live version had this call. A log without events tells in no other way what is live: a number that comes again
/// with another source, or a lower one, is of another process.
void PolicyIncident::note_answer(IncidentVersion& version, const Json& line, bool counts) {
  if (has_events_ || live_ == &version) return;
  IncidentEvent noted{line, &version, live_};
  if (live_ && version.number <= live_->number) ++starts_;
  note_live(version, line);
  if (!noted.previous || !counts) return;
  noted.line = {{"time", field(line, "time")},
                {"event", "answers"},
                {"policy", name_},
                {"path", field(line, "path")},
                {"version", version.number},
                {"hash", version.hash},
                {"previous_version", noted.previous->number},
                {"previous_hash", noted.previous->hash}};
  note_event(std::move(noted));
}

/// A call that `guilty` failed, and `version` answered, or nothing.
void PolicyIncident::note_failure(IncidentVersion& version, IncidentVersion& guilty, const Json& line) {
  const uint64_t batch = count_in(line, "batch");
  ++failed_calls_;
  ++guilty.failed_calls;
  guilty.failed_samples += batch;
  if (&guilty != &version) {
    guilty.batch += batch;
    guilty.flagged_by_others += count_in(line, "flagged");
    version.stood_in += batch;
    return;
  }
  guilty.flagged_in_failed += count_in(line, "flagged");
  if (field(line, "answered") == "failed") guilty.unread_samples += batch;
}

void PolicyIncident::add_call(const Json& line, bool counts, bool whole, bool ids) {
  IncidentVersion& version = version_of(count_in(line, "version"), field(line, "hash"));
  const std::string answered = field(line, "answered");
  // Of a call that nothing answered, the line has the live version.
  if (answered == "live" || answered == "failed" || answered == "passed_through") note_answer(version, line, counts);
  if (path_.empty()) path_ = field(line, "path");
  IncidentVersion& called = called_by(line, version);
  const uint64_t batch = count_in(line, "batch"), flagged = count_in(line, "flagged");
  if (const auto totals = totals_in(line, "totals"); totals.samples > 0)
    called.count.add_call(totals, batch, flagged, counts, whole);
  if (!counts) return;
  // What every version refuses is a mistake of the host; what another one answers is not.
  const bool failed = line.contains("failure") && (field(line, "failure_kind") != "input" || &called != &version);
  ++calls_;
  flagged_calls_ += flagged > 0;
  flagged_ += flagged;
  repaired_ += count_in(line, "repaired");
  ++version.calls;
  version.batch += batch;
  version.flagged += flagged;
  version.repaired += count_in(line, "repaired");
  if (failed)
    note_failure(version, called, line);
  else if (&called != &version)
    version.stood_in += batch;
  const double time = seconds_of(field(line, "time"));
  versions_over_time_.add(time, 1, static_cast<int64_t>(batch),
                          {{{version.title(), ""}, static_cast<int64_t>(flagged)}});
  add_samples(line, version, time, ids);
}

void PolicyIncident::add_samples(const Json& line, const IncidentVersion& version, double time, bool ids) {
  std::map<std::string, int64_t> locations, codes;
  if (const auto samples = line.find("samples"); samples != line.end())
    for (const Json& sample : *samples) {
      std::set<std::string> at, kinds;  // a sample counts once for each
      std::vector<std::string> errors;
      if (const auto found = sample.find("errors"); found != sample.end())
        for (const Json& error : *found) {
          at.insert(field(error, "location"));
          kinds.insert(field(error, "code"));
          errors.push_back(fmt::format("{} @ {}", field(error, "code"), field(error, "location")));
        }
      for (const std::string& name : at) count(of_location_, name), ++locations[name];
      for (const std::string& name : kinds) count(of_code_, name), ++codes[name];
      if (ids && samples_.size() < most_samples)
        samples_.push_back({field(line, "time"), field(sample, "sample_id"), field(line, "decision_id"),
                            fmt::format("{}", fmt::join(errors, ", ")), field(sample, "done"),
                            count_in(sample, "sample"), &version});
    }
  locations_over_time_.add(time, 1, 0, as_counts(locations));
  codes_over_time_.add(time, 1, 0, as_counts(codes));
}

}  // namespace triage::cli
