#pragma once
#include <triage/state.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/policy/state/state_store.h"
#include "runtime/policy/versions/version.h"

namespace triage::policy {

class PolicyCore;

/// The state of a policy: what its live version can take of it, and what hosts do with it. Thread-safe.
class StateKeeper {
 public:
  explicit StateKeeper(PolicyCore& policy);

  StateStore& store() noexcept { return store_; }
  /// With the state of a canary.
  StateCounts counts() const;
  /// Copies. Without what the live version would begin anew.
  PolicyState state() const;
  void set_state(const PolicyState& state);
  /// Without a key, of all.
  void reset(std::optional<std::string_view> key);
  void save(const std::filesystem::path& file) const;
  void load(const std::filesystem::path& file);

  /// A canary is about to go live, or has gone live while a call of it ran: what its calls kept is from now on the
  /// state of the policy, where they came last.
  void take_over(const Candidate& canary);
  /// Says what `version`, which has gone live, cannot take, and drops that.
  void tell(const PolicyVersion& version);
  /// What the version that went live last could not take; nothing where it took all, or this was asked before.
  std::string take_note();
  /// Drops what the live version does not declare, of keys that no call uses, too: another version may declare it
  /// again. While the live version is on trial, the one before may have to go on with it.
  void drop_unfitting();
  /// A batch of `rows` samples began the state of its key anew, which had another number.
  void report_other_batch(int64_t rows);
  /// Where state of keys went since it was told last.
  void report_dropped_keys();

 private:
  StateOfKeys fitting() const;
  void replace(StateOfKeys all);
  Signature live_signature() const;

  PolicyCore& policy_;
  StateStore store_;
  std::string note_;  // under the mutex of the policy's line
  std::atomic<uint64_t> other_batches_{0}, dropped_told_{0};
};

}  // namespace triage::policy
