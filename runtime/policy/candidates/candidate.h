#pragma once
#include "runtime/policy/attribution/counters.h"
#include "runtime/policy/candidates/rules.h"
#include "runtime/policy/share.h"
#include "runtime/policy/state/state_store.h"
#include "runtime/policy/versions/version.h"

#include <triage/candidate.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace triage::policy {

class PolicyCore;

/// Counts of the calls of one side. Any thread may count at any time, without a lock.
class Side {
 public:
  /// `time`: nothing for a call that took long for a reason of its own. Returns how many calls there are now.
  uint64_t note(const std::optional<std::chrono::nanoseconds>& time,
                const std::optional<Counters::Flagged>& flagged) noexcept;
  SideNumbers read() const noexcept;
  /// As CanaryMeasurements has it.
  double spread() const noexcept;
  uint64_t calls() const noexcept { return calls_.load(std::memory_order_relaxed); }

 private:
  void note_samples(const Counters::Flagged& counted) noexcept;

  using Count = std::atomic<uint64_t>;
  alignas(64) Count calls_{0};
  Count samples_{0}, flagged_{0};
  Count flagged_squared_{0}, flagged_by_samples_{0}, samples_squared_{0};  // summed over calls
  Latency latency_;
};

/// What is known of a candidate beside one live version: begun anew when another one goes live.
class Comparison {
 public:
  Comparison(int live_version, std::string live_hash) : live_version(live_version), live_hash(std::move(live_hash)) {}

  const int live_version;
  const std::string live_hash;
  Side live, candidate;
  std::atomic<uint64_t> failures{0};       // of a canary
  std::atomic<bool> live_compiled{false};  // no loop of its latest call ran as a tape
  std::atomic<uint32_t> judges{0};         // calls that want the rules looked at
  // Of a shadow:
  std::atomic<uint64_t> dropped{0};
  void not_comparable(const std::string& why);
  /// For the candidate thread, which compares meanwhile. Calls `change(ShadowReport&)`; one thread at a time.
  template <class Change>
  void change_shadow(Change&& change) {
    const std::lock_guard lock(mutex_);
    change(shadow_);
  }
  ShadowReport shadow() const;

  /// The latest failure of the candidate.
  void note_failure(const std::string& message);
  std::string last_failure() const;
  CanaryMeasurements measure() const;

 private:
  mutable std::mutex mutex_;  // may be held while a call is compared
  ShadowReport shadow_;
  std::atomic<uint64_t> not_comparable_{0};
  mutable std::mutex texts_;  // short: what follows
  std::string why_not_, last_failure_;
};

/// A version that runs beside the live one.
class Candidate {
 public:
  Candidate(std::weak_ptr<PolicyCore> policy, std::shared_ptr<PolicyVersion> version, ShadowOptions options,
            const RuntimeOptions& of_runtime);
  Candidate(std::weak_ptr<PolicyCore> policy, std::shared_ptr<PolicyVersion> version, CanaryOptions options,
            const RuntimeOptions& of_runtime);

  const std::weak_ptr<PolicyCore> policy;
  const std::shared_ptr<PolicyVersion> version;
  const CandidateKind kind;
  const ShadowOptions shadow;
  const CanaryOptions canary;
  const double share;
  const std::chrono::system_clock::time_point since = std::chrono::system_clock::now();
  std::atomic<uint64_t> restarts{0};
  bool by_gate = false;  // a reload started it (ReloadGate::shadow); fixed once it runs

  /// Of a canary: the state that its calls update. A key begins with that of the live version.
  StateStore own_state;

  /// Whether a call is of its share.
  bool takes(std::string_view decision_id) noexcept { return calls_.takes(decision_id); }
  bool running() const noexcept { return state_.load(std::memory_order_acquire) == CandidateState::running; }
  CandidateState state() const noexcept { return state_.load(std::memory_order_acquire); }
  /// Ends it; true for the first who does. From then on no call is given to it.
  bool decide(CandidateState end) noexcept;
  /// After an end that failed.
  void resume() noexcept { state_.store(CandidateState::running, std::memory_order_release); }

  /// A promotion is asked for once.
  std::atomic<bool> promotion_asked{false};

 private:
  ShareOfCalls calls_;
  std::atomic<CandidateState> state_{CandidateState::running};
};

/// Throw InputError for what is out of range.
void check_options(const ShadowOptions& options);
void check_options(const CanaryOptions& options);

/// What both know; `reason` is empty while the candidate runs.
CandidateReport report_of(const Candidate& candidate, const Comparison& comparison, const std::string& policy,
                          const std::string& reason);

}  // namespace triage::policy
