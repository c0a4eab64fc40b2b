#pragma once
#include <ATen/core/Tensor.h>
#include <triage/runtime.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/policy/attribution/counters.h"
#include "runtime/policy/attribution/flagged.h"
#include "runtime/policy/core/lineup.h"
#include "runtime/policy/loading.h"
#include "runtime/policy/state/state_store.h"
#include "runtime/policy/versions/answer.h"
#include "runtime/policy/versions/epochs.h"
#include "runtime/policy/versions/version_call.h"

namespace triage::policy {

class DecisionQueue;
class PolicyCore;
struct ShadowCall;

/// One call of a policy: any thread, without a lock, but for a policy with state. `run` goes this way:
///
///     answer   of the version that is asked: the live one, or the candidate for a canary's share of the calls
///       admit    the inputs are checked against the signature
///       take_turn  where the policy has state, calls with the same key are over
///       VersionCall::run  the version runs
///       accept   its answer has the form that callers know, and lies in its ranges
///       stand_in  where one of these fails, another answers: the version before, the inputs, the last good version
///       settle   a trial goes on, ends, or leads back; the state is kept
///     account  counts, RunInfo, the decision log
///
/// `policy`, `inputs` and `options` outlive it.
class PolicyCall {
 public:
  /// `lineup`: null for the one that is there now.
  PolicyCall(PolicyCore& policy, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
             const Lineup* lineup = nullptr);
  /// A call that was not accounted for has failed, and is counted as that.
  ~PolicyCall();
  PolicyCall(const PolicyCall&) = delete;
  PolicyCall& operator=(const PolicyCall&) = delete;

  static std::vector<at::Tensor> run(PolicyCore& policy, at::ArrayRef<at::Tensor> inputs, const RunOptions& options);
  /// Runs the live version once, for no host: nothing is counted, no state kept, no random number drawn. Ends when what
  /// it needs is compiled, also for inputs that are donated. Throws what the version throws, whatever `on_error` says.
  void prepare();

 private:
  using Clock = std::chrono::steady_clock;
  using Flagged = std::optional<Counters::Flagged>;

  void answer();
  void admit();
  void take_turn();
  RunOptions replaceable_options();
  void accept();
  void hold_to_form() const;  // form_check.cpp
  bool is_form_of_before() const;
  void settle();
  void settle_trial();
  void keep_state();
  void account(const PolicyVersion& called) noexcept;
  void note_decision(DecisionQueue& queue, const PolicyVersion& called, std::chrono::nanoseconds time,
                     const FlaggedSamples& found, const std::vector<FlaggedSample>& samples);
  void read_flags(const PolicyVersion& called, FlaggedSamples& found, std::vector<FlaggedSample>& samples);

  // Where the version that was asked fails (stand_in.cpp):
  bool stand_in(const std::exception& error);
  bool answer_from_before(const std::exception& error);
  void meet_violations();
  void count_violations();
  void revert_for_violations();
  void recover();
  OnError on_error() const;
  bool took_inputs() const;

  // While there is a candidate (beside.cpp):
  void run_beside();
  void run_as_canary();
  void judge_canary() const noexcept;
  void blame_canary(const std::exception& error) const noexcept;
  void answer_as_live(const std::exception& error);
  void count_live_side() const;
  void run_and_shadow();
  std::shared_ptr<ShadowCall> begin_shadow() const;
  void hand_to_shadow(const std::shared_ptr<ShadowCall>& shadow) const;
  std::optional<std::chrono::nanoseconds> time_of_version(bool usual) const;

  PolicyCore& policy_;
  const Epochs::Reading reading_;  // lineup_ stays
  std::optional<Loading::Cancellable>
      no_reload_;                          // where a function of the host calls within a reload: this is no part of it
  const std::optional<RunOptions> plain_;  // where the deadline is none that others are computed from
  const Lineup& lineup_;
  const at::ArrayRef<at::Tensor> inputs_;
  const RunOptions& options_;
  Clock::time_point begin_ = Clock::now();

  const Lineup* asked_;  // lineup_, or that of a canary
  bool replaceable_;     // another version may have to answer: what is asked is on trial, or a canary
  bool admitted_ = false, prepares_ = false, accounted_ = false;
  Clock::time_point asked_at_;
  std::optional<StateTurn> turn_;
  Answer answer_;
  Flagged flagged_;  // of the samples, where that was counted
};

}  // namespace triage::policy
