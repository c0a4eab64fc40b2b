#pragma once
#include "runtime/policy/attribution/counters.h"
#include "runtime/policy/attribution/flags_trace.h"
#include "runtime/policy/core/candidate_slot.h"
#include "runtime/policy/core/state_keeper.h"
#include "runtime/policy/core/version_line.h"
#include "runtime/policy/host/change_log.h"
#include "runtime/policy/ranges/violations.h"
#include "runtime/policy/versions/use.h"
#include "runtime/random/sequence.h"

#include <triage/runtime.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace triage::policy {

class Releases;

/// One policy: its versions, and what they share. Its Releases own it, and decide which version is live.
class PolicyCore {
 public:
  /// `path` is as the user gave it; `file` is where its source lies, or empty.
  PolicyCore(std::shared_ptr<RuntimeCore> runtime, Releases& releases, std::string path, std::filesystem::path file);

  RuntimeCore& runtime() const noexcept { return *runtime_; }
  Releases& releases() const noexcept { return releases_; }
  const std::string& name() const noexcept { return log_.name(); }
  const std::string& path() const noexcept { return log_.path(); }
  const std::filesystem::path& file() const noexcept { return file_; }
  const ChangeLog& log() const noexcept { return log_; }

  VersionLine& line() noexcept { return line_; }
  const VersionLine& line() const noexcept { return line_; }
  StateKeeper& state() noexcept { return state_; }
  CandidateSlot& candidates() noexcept { return candidates_; }
  FlagsTrace& flags_trace() noexcept { return flags_trace_; }
  PolicyUsage& use() noexcept { return use_; }
  const std::shared_ptr<random::Sequence>& random() const noexcept { return random_; }

  /// Takes the name and the params of its first version.
  void begin_with(const PolicyVersion& version);
  /// Reports the statistics of its calls and of what went live; takes the mutex of line().
  PolicyStatistics statistics();
  /// For all calls from now on. Throws InputError where no version takes it.
  void set_param(const std::string& name, ParamValue value);
  /// A version that is to go live, or to run as a candidate, gets its number. With the mutex of line().
  void give_number(PolicyVersion& version);
  void count_refusal();
  /// Its live version has failed, and an earlier one replaced it. With the mutex of line().
  void count_reversal(const PolicyVersion& failed) noexcept;

  /// `version` has failed a call. The 1st, 2nd, 4th, 8th ... failure of a version is told.
  void report_failure(PolicyVersion& version, const std::exception& error) const;
  /// Of a call; says so as often as report_failure does.
  void report_violations(const PolicyVersion& version, const Violations& violations) const;
  /// Says that `version` is live, and what of the params and the state does not fit it.
  void report_live(const PolicyVersion& version);
  void report_params(const PolicyVersion& version) const;

  /// Of a member of a bundle, why its newest source is not live: under the mutex of line().
  std::optional<LoadFailure> last_error;

 private:
  const std::shared_ptr<RuntimeCore> runtime_;
  Releases& releases_;
  const std::filesystem::path file_;
  ChangeLog log_;
  const std::shared_ptr<random::Sequence> random_;  // of all versions: a reload goes on with it
  FlagsTrace flags_trace_;
  PolicyUsage use_;
  VersionLine line_;
  StateKeeper state_;
  CandidateSlot candidates_;
  // Under the mutex of line_:
  CallCounts counts_;
  uint64_t refused_ = 0, reverted_ = 0;
};

}  // namespace triage::policy
