#pragma once
#include <triage/state.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/capture/waiting.h"
#include "runtime/policy/state/state_of_call.h"

namespace triage::policy {

using StateOfKeys = std::vector<std::pair<std::string, KeptState>>;

struct StateCounts {
  uint64_t keys = 0;
  uint64_t bytes = 0;    // of their tensors
  uint64_t dropped = 0;  // StateStore::dropped
};

/// The state of one policy, by key; those that are not used for long go. Thread-safe.
class StateStore {
 public:
  /// `age`: see RuntimeOptions::state_age.
  StateStore(size_t most_keys, std::chrono::seconds age) : most_keys_(most_keys > 0 ? most_keys : 1), age_(age) {}

  /// What the next call with `key` begins with; the key counts as unused. Waits for no call.
  KeptState look(std::string_view key) const;
  /// Of the key that was used last.
  KeptState newest() const;
  /// The least recently used first.
  StateOfKeys all() const;
  void replace(StateOfKeys all);
  void reset();
  void reset(std::string_view key);
  using Fits = std::function<bool(const std::string& name, const at::Tensor& tensor)>;
  /// Each key gets the state that a call kept last, here or in `other`, and from the older one the names that it lacks.
  /// Under one name there may be a tensor that fits and one that does not.
  void take_over(const StateStore& other, const Fits& fits);
  /// Drops all other tensors, of all keys.
  void keep_only(const Fits& wanted);
  /// Keys that went because there were too many.
  uint64_t dropped() const;
  StateCounts counts() const;

 private:
  friend class StateTurn;
  using Clock = std::chrono::steady_clock;
  struct StateSlot {
    explicit StateSlot(std::string_view of) : key(of) {}
    const std::string key;
    capture::OwnedMutex turn;  // held by the call that runs with it
    KeptState state;           // this and `used` under mutex_; null: no call has come to its end
    Clock::time_point used = Clock::now(), kept = used;  // `kept`: when a call, or the host, gave it the state
  };
  using Slots = std::list<std::shared_ptr<StateSlot>>;

  std::shared_ptr<StateSlot> use(std::string_view key);
  StateSlot& add(std::string_view key);
  void erase(Slots::iterator slot);
  void drop_old();
  bool is_old(const StateSlot& slot) const {
    return age_.count() > 0 && std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - slot.used) >= age_;
  }

  const size_t most_keys_;
  const std::chrono::seconds age_;
  mutable std::mutex mutex_;  // short: what follows
  Slots slots_;               // the least recently used first
  std::unordered_map<std::string_view, Slots::iterator> by_key_;
  uint64_t dropped_ = 0;
};

/// While one lives, no other call runs with its key.
class StateTurn {
 public:
  /// Waits until other calls with the key have come to their end. Throws capture::WaitedError where `deadline` passes
  /// meanwhile, and PolicyError, which names `policy`, where one of them runs on this thread, or waits for what this
  /// thread has.
  StateTurn(StateStore& store, std::string_view key, std::optional<std::chrono::steady_clock::time_point> deadline,
            const std::string& policy);
  ~StateTurn();
  StateTurn(const StateTurn&) = delete;
  StateTurn& operator=(const StateTurn&) = delete;

  /// What the call begins with.
  KeptState state() const;
  /// From now on. Goes nowhere where the key was set or reset since the call began.
  void keep(KeptState state);

 private:
  StateStore& store_;
  std::shared_ptr<StateStore::StateSlot> slot_;
};

}  // namespace triage::policy
