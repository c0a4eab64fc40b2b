#pragma once
#include "runtime/policy/core/lineup.h"
#include "runtime/policy/host/runtime_core.h"
#include "runtime/policy/trials/known_sources.h"
#include "runtime/policy/versions/epochs.h"
#include "runtime/policy/versions/reclaimer.h"

#include <triage/runtime.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace triage::policy {

/// The versions of one policy: the live one, which calls read without a lock, those that are kept for a rollback, and a
/// candidate.
///
/// A change is staged, which may fail, and then committed, which cannot; whoever does that holds mutex() all the while.
/// What calls use of a version that was replaced is freed when none of them can use it any more.
class VersionLine {
 public:
  using Versions = std::vector<std::shared_ptr<PolicyVersion>>;
  struct ParamNames {
    std::set<std::string> lasting;  // those that every version so far has had
    std::set<std::string> former;   // those that any version has had
  };
  struct Retired {
    std::unique_ptr<const Lineup> lineup;
    Versions versions;
  };
  /// A version that is about to be live.
  struct Staged {
    std::unique_ptr<Lineup> next;
    Versions kept;
    Params params;
    std::shared_ptr<Retired> retired;
    Reclaimer::Garbage garbage;  // it
    uint64_t turn = 0;           // PolicyVersion::turn, from then on
    // Of a version that goes live for the first time:
    KnownSources::Noted known;
    std::optional<ParamNames> param_names;
  };

  explicit VersionLine(std::shared_ptr<RuntimeCore> runtime) : runtime_(std::move(runtime)) {}
  ~VersionLine();
  VersionLine(const VersionLine&) = delete;
  VersionLine& operator=(const VersionLine&) = delete;

  /// Counts the thread as a reader; for lineup().
  Epochs& epochs() const noexcept { return *epochs_; }
  const Lineup& lineup() const noexcept { return *lineup_.load(std::memory_order_seq_cst); }
  bool is_live(const PolicyVersion& version) const noexcept {
    return lineup_.load(std::memory_order_acquire)->version.get() == &version;
  }
  /// Calls `look(const PolicyVersion&)` with the live version, which is not freed meanwhile.
  template <class Look>
  auto with_live(Look&& look) const {
    const Epochs::Reading reading(*epochs_);
    return look(*lineup().version);
  }
  std::shared_ptr<PolicyVersion> live() const;
  /// Sets a param of all calls. Throws InputError where neither the live version nor the candidate takes it, and where
  /// one of them does not allow the value: both answer calls with it. Returns the value that was set before; nothing
  /// where none was.
  std::optional<ParamValue> set_param(const std::string& name, ParamValue value);

  /// Short, of all that follows.
  std::mutex& mutex() const noexcept { return mutex_; }
  /// Null before the first version is live.
  const Lineup* now() const noexcept { return lineup_.load(std::memory_order_relaxed); }
  const Versions& kept() const noexcept { return versions_; }  // by number; the live one is among them
  const Params& params() const noexcept { return params_; }    // set by the host for all calls
  /// What a successor must not lack, and what it may still be asked for.
  const ParamNames& param_names() const noexcept { return param_names_; }
  KnownSources& known_sources() noexcept { return known_sources_; }
  int newest_live() const noexcept { return newest_live_; }
  uint64_t went_live() const noexcept { return went_live_; }

  /// Throws LoadError where `next` was never live and does not allow what the host has set. A way back stays open:
  /// there such a param has its default.
  void check_params(const PolicyVersion& next) const;
  Staged stage(const std::shared_ptr<PolicyVersion>& version) { return stage(version, params_); }
  void commit(Staged staged) noexcept;
  int next_number() noexcept { return next_number_++; }
  /// Before the first version goes live.
  void begin_with(const PolicyVersion& version);

  const std::shared_ptr<Candidate>& candidate() const noexcept { return candidate_; }
  const std::shared_ptr<Comparison>& comparison() const noexcept { return comparison_; }  // of it, or of the one before
  /// Runs it beside the live version; null: none. Where that throws, nothing has changed.
  void set_candidate(std::shared_ptr<Candidate> candidate);
  /// It is live.
  void forget_candidate() noexcept { candidate_ = nullptr; }

 private:
  Staged stage(const std::shared_ptr<PolicyVersion>& version, Params params);
  Versions keep(const std::shared_ptr<PolicyVersion>& version, Versions& dropped) const;
  std::shared_ptr<PolicyVersion> find_last_good(uint64_t turn, const Versions& kept) const;
  std::shared_ptr<PolicyVersion> find_stand_in(const PolicyVersion& version, uint64_t turn, const Versions& kept) const;
  std::shared_ptr<const CandidateLineup> make_candidate_lineup(const std::shared_ptr<PolicyVersion>& live,
                                                               const Params& params) const;
  ParamNames param_names_with(const PolicyVersion& version) const;

  const std::shared_ptr<RuntimeCore> runtime_;
  const std::shared_ptr<Epochs> epochs_ = std::make_shared<Epochs>();
  std::atomic<const Lineup*> lineup_{nullptr};

  mutable std::mutex mutex_;  // what follows, and replacing lineup_
  Versions versions_;
  Params params_;
  ParamNames param_names_;
  KnownSources known_sources_;
  uint64_t went_live_ = 0;
  int next_number_ = 1, newest_live_ = 0;
  std::shared_ptr<Candidate> candidate_;
  std::shared_ptr<Comparison> comparison_;
};

}  // namespace triage::policy
