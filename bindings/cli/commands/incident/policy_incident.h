#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bindings/cli/commands/incident/sample_count.h"
#include "bindings/cli/commands/report/flags_over_time.h"

namespace triage::cli {

/// One version of a policy in a log. Numbers begin anew with each process, hashes do not.
struct IncidentVersion {
  uint64_t number = 0;
  std::string hash, kept;
  uint64_t bundle_version = 0;
  size_t met = 0;                                            // the order of their first lines
  uint64_t went_live = 0;                                    // the order of going live, the last time; 0: it never did
  uint64_t of_start = 0;                                     // the process in which that was, counted by loads
  uint64_t calls = 0, batch = 0, flagged = 0, repaired = 0;  // of lines
  uint64_t failed_calls = 0, failed_samples = 0;             // that nothing answered, or another version
  uint64_t flagged_in_failed = 0;                            // of `flagged`, those that are failed samples too
  uint64_t flagged_by_others = 0;                            // in calls that it failed and another one answered
  uint64_t unread_samples = 0;                               // that nothing answered: totals lack them
  uint64_t stood_in = 0;                                     // answered for another version, whose totals have them
  SampleCount count;

  /// Without totals in the log, the samples of the calls that have lines.
  bool is_counted() const noexcept { return count.samples() > 0; }
  uint64_t samples() const noexcept;
  /// Where lines are missing, its totals tell of more samples than the lines.
  uint64_t flagged_samples() const noexcept;
  /// Samples that were flagged, or in a call that it failed; each counts once.
  uint64_t harmed() const noexcept { return flagged_samples() - flagged_in_failed + failed_samples; }
  /// Of its samples those that it harmed; nothing without samples.
  std::optional<double> share() const noexcept;
  std::string title() const;  // "version 2 (05adcc29)"
};

/// What the lines of one policy tell: what happened to it, and which samples were flagged.
class PolicyIncident {
 public:
  using Json = nlohmann::ordered_json;

  explicit PolicyIncident(std::string name) : name_(std::move(name)) {}

  /// `counts`: whether the line is in the time that is asked for; what lies before it says what was live. `whole`: all
  /// lines are asked for.
  void add_event(const Json& line, bool counts, bool whole);
  /// `ids`: the names of flagged samples are kept.
  void add_call(const Json& line, bool counts, bool whole, bool ids);

  struct IncidentEvent {
    Json line;
    const IncidentVersion* version = nullptr;   // that went live
    const IncidentVersion* previous = nullptr;  // that was live before; null: none is known
  };
  struct IncidentSample {
    std::string time, id, decision_id, errors, done;
    uint64_t row = 0;
    const IncidentVersion* version = nullptr;
  };

  const std::string& name() const noexcept { return name_; }
  const std::string& path() const noexcept { return path_; }
  const std::string& bundle() const noexcept { return bundle_; }
  /// In the order of time.
  const std::vector<IncidentEvent>& events() const noexcept { return events_; }
  uint64_t events_left_out() const noexcept { return events_left_out_; }
  const std::vector<const IncidentVersion*>& versions() const noexcept { return order_; }  // as they were met
  /// Null where neither an event nor a call says which.
  const IncidentVersion* live() const noexcept { return live_; }
  /// Of the process that wrote last.
  uint64_t start() const noexcept { return starts_; }
  bool is_pinned() const noexcept { return pinned_; }
  const std::map<std::string, uint64_t>& locations() const noexcept { return of_location_; }
  const std::map<std::string, uint64_t>& codes() const noexcept { return of_code_; }
  uint64_t calls() const noexcept { return calls_; }
  uint64_t flagged_calls() const noexcept { return flagged_calls_; }
  uint64_t flagged() const noexcept { return flagged_; }
  uint64_t repaired() const noexcept { return repaired_; }
  uint64_t failed_calls() const noexcept { return failed_calls_; }
  const std::vector<IncidentSample>& samples() const noexcept { return samples_; }
  const FlagsOverTime& versions_over_time() const noexcept { return versions_over_time_; }
  const FlagsOverTime& locations_over_time() const noexcept { return locations_over_time_; }
  const FlagsOverTime& codes_over_time() const noexcept { return codes_over_time_; }
  bool has_steps() const noexcept { return calls_ > 0; }

  static constexpr size_t most_events = 1'000, most_samples = 100'000, most_names = 1'000;

 private:
  IncidentVersion& version_of(uint64_t number, const std::string& hash);
  void note_live(IncidentVersion& version, const Json& line);
  IncidentVersion& called_by(const Json& line, IncidentVersion& version);
  void note_answer(IncidentVersion& version, const Json& line, bool counts);
  void note_failure(IncidentVersion& version, IncidentVersion& guilty, const Json& line);
  void note_event(IncidentEvent noted);
  void note_end(IncidentVersion& version, const Json& line, bool counts, bool whole);
  void add_samples(const Json& line, const IncidentVersion& version, double time, bool ids);

  std::string name_, path_, bundle_;
  std::map<std::pair<uint64_t, std::string>, IncidentVersion> versions_;
  std::vector<const IncidentVersion*> order_;
  std::map<uint64_t, IncidentVersion*> of_number_;  // that had this number last
  std::vector<IncidentEvent> events_;
  IncidentVersion* live_ = nullptr;
  bool has_events_ = false, pinned_ = false;
  uint64_t starts_ = 0, lives_ = 0, events_left_out_ = 0;
  uint64_t calls_ = 0, flagged_calls_ = 0, flagged_ = 0, repaired_ = 0, failed_calls_ = 0;
  std::map<std::string, uint64_t> of_location_, of_code_;  // samples
  std::vector<IncidentSample> samples_;
  FlagsOverTime versions_over_time_, locations_over_time_, codes_over_time_;
};

/// The seconds since 1970 of a time as a log has it.
double seconds_of(const std::string& time);

}  // namespace triage::cli
