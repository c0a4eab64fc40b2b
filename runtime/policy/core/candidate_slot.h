#pragma once
#include <triage/candidate.h>
#include <triage/runtime.h>
#include <triage/statistics.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/capture/waiting.h"
#include "runtime/policy/candidates/candidate.h"
#include "runtime/policy/core/making.h"

namespace triage::policy {

class PolicyCore;

/// The candidate of a policy: at most one at a time, from its start to its end. Thread-safe.
///
/// Of the ends (promoted by the host or by its rule, reverted by a rule, ended by the host or with the Runtime) the
/// first one counts: Candidate::decide says which.
class CandidateSlot {
 public:
  explicit CandidateSlot(PolicyCore& policy) : policy_(policy) {}

  using Make = std::function<std::shared_ptr<Candidate>(std::shared_ptr<PolicyVersion>)>;
  /// Loads and tries `source`, and runs it as the candidate that `make` makes of it. Throws InputError where there is
  /// one already, and where a script that is loaded for one asks for another; LoadError where the source is refused.
  VersionInfo start(NewSource source, const Make& make);
  /// Runs a version that a gate of a reload has stopped, in place of one that was started so before. Throws InputError
  /// where the host has started a candidate.
  VersionInfo start_stopped(std::shared_ptr<Candidate> candidate, const PolicyVersion& tried_beside);
  /// A reload has brought another version: what a gate has started ends.
  void end_stopped();
  /// Null where there is none.
  std::shared_ptr<Candidate> running() const;
  /// Of the candidate, or of the last one that came to its end. `pinned`: the number of the live version where it is
  /// pinned.
  std::optional<CandidateReport> report(std::optional<int> pinned) const;

  /// By the host. Throws InputError where there is none.
  CandidateReport end();
  /// By a rule. Nothing where it has come to its end already.
  void revert(const std::shared_ptr<Candidate>& candidate, const std::string& reason, const Source& source);
  /// It was decided to promote it, and it is live.
  void finish_promoted(const std::shared_ptr<Candidate>& candidate, const std::string& reason);
  /// The Runtime is about to go: no thread looks after a candidate any more.
  void forget() noexcept;

  /// A candidate that came to its end, once for each.
  struct End {
    CandidateState state;
    int live_version;
    std::string reason;
    Source source;
  };
  std::vector<End> take_ends();
  /// Sets what statistics say of candidates. With the mutex of the policy's line.
  void read(PolicyStatistics& statistics) const;

 private:
  std::shared_ptr<PolicyVersion> make_version(NewSource source);
  void check_none() const;
  void check_runtime() const;
  std::optional<CandidateReport> end(const std::string& by);
  VersionInfo begin(const std::shared_ptr<Candidate>& candidate, const PolicyVersion& tried_beside);
  std::optional<CandidateReport> end_as(CandidateState end, const std::shared_ptr<Candidate>& candidate,
                                        const std::string& reason, const Source& source);
  CandidateReport finish(const std::shared_ptr<Candidate>& candidate, const std::string& reason, const Source& source);
  void note_end(const Candidate& candidate, const CandidateReport& report, const std::string& reason) const;
  void post_end(const std::shared_ptr<Candidate>& candidate, const CandidateReport& report);

  PolicyCore& policy_;
  capture::OwnedMutex starting_;  // held while a source is loaded and tried
  // Under the mutex of the policy's line, which has the candidate itself:
  std::optional<CandidateReport> last_report_;  // of the candidate before
  std::vector<End> ends_;                       // that no Watch has told yet
  uint64_t started_ = 0, promoted_ = 0, reverted_ = 0;
};

}  // namespace triage::policy
