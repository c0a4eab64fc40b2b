#include "runtime/policy/state/state_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/backends/deadline.h"
#include "runtime/capture/compiled.h"

namespace triage::policy {
namespace {

/// `later`, and what it lacks of `earlier`.
KeptState joined(const KeptState& later, const KeptState& earlier, const StateStore::Fits& fits) {
  if (!earlier) return later;
  auto all = std::make_shared<StateTensors>(*later);
  const auto is_like = [&](const auto& one, const auto& other) {
    return one.first == other.first && fits(one.first, one.second) == fits(other.first, other.second);
  };
  for (const auto& one : *earlier)
    if (std::none_of(later->begin(), later->end(), [&](const auto& other) { return is_like(one, other); }))
      all->push_back(one);
  return all;
}

}  // namespace

KeptState StateStore::look(std::string_view key) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  return found == by_key_.end() || is_old(**found->second) ? nullptr : (*found->second)->state;
}

KeptState StateStore::newest() const {
  const std::lock_guard lock(mutex_);
  for (auto slot = slots_.rbegin(); slot != slots_.rend(); ++slot)
    if ((*slot)->state) return (*slot)->state;
  return nullptr;
}

StateOfKeys StateStore::all() const {
  StateOfKeys all;
  const std::lock_guard lock(mutex_);
  for (const auto& slot : slots_)
    if (slot->state && !is_old(*slot)) all.emplace_back(slot->key, slot->state);
  return all;
}

void StateStore::replace(StateOfKeys all) {
  Slots slots;
  decltype(by_key_) by_key;
  const size_t first = all.size() - std::min(all.size(), most_keys_);
  for (size_t i = first; i < all.size(); ++i) {
    slots.push_back(std::make_shared<StateSlot>(all[i].first));
    slots.back()->state = std::move(all[i].second);
    by_key[slots.back()->key] = std::prev(slots.end());
  }
  const std::lock_guard lock(mutex_);
  dropped_ += first;
  by_key_.swap(by_key);
  slots_.swap(slots);
}

void StateStore::reset() {
  const std::lock_guard lock(mutex_);
  by_key_.clear();
  slots_.clear();
}

void StateStore::reset(std::string_view key) {
  const std::lock_guard lock(mutex_);
  if (const auto found = by_key_.find(key); found != by_key_.end()) erase(found->second);
}

void StateStore::keep_only(const Fits& wanted) {
  const auto is_wanted = [&](const auto& kept) { return wanted(kept.first, kept.second); };
  const std::lock_guard lock(mutex_);
  for (const auto& slot : slots_) {
    if (!slot->state || std::all_of(slot->state->begin(), slot->state->end(), is_wanted)) continue;
    auto left = std::make_shared<StateTensors>();
    std::copy_if(slot->state->begin(), slot->state->end(), std::back_inserter(*left), is_wanted);
    slot->state = std::move(left);
  }
}

void StateStore::take_over(const StateStore& other, const Fits& fits) {
  struct TakenOverState {
    std::string key;
    KeptState state;
    Clock::time_point used, kept;
  };
  std::vector<TakenOverState> taken;
  {
    const std::lock_guard lock(other.mutex_);
    for (const auto& slot : other.slots_)
      if (slot->state && !other.is_old(*slot)) taken.push_back({slot->key, slot->state, slot->used, slot->kept});
  }
  const std::lock_guard lock(mutex_);
  for (const TakenOverState& of : taken) {
    const auto found = by_key_.find(of.key);
    const bool is_new = found == by_key_.end();
    StateSlot& slot = is_new ? add(of.key) : **found->second;
    const bool is_later = !slot.state || of.kept > slot.kept;
    slot.state = joined(is_later ? of.state : slot.state, is_later ? slot.state : of.state, fits);
    slot.used = is_new ? of.used : std::max(slot.used, of.used);
    slot.kept = is_new ? of.kept : std::max(slot.kept, of.kept);
  }
  slots_.sort([](const auto& one, const auto& next) { return one->used < next->used; });
  drop_old();
}

uint64_t StateStore::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

StateCounts StateStore::counts() const {
  StateCounts counts;
  const std::lock_guard lock(mutex_);
  counts.dropped = dropped_;
  for (const auto& slot : slots_) {
    if (!slot->state || is_old(*slot)) continue;
    ++counts.keys;
    for (const auto& [name, tensor] : *slot->state) counts.bytes += tensor.nbytes();
  }
  return counts;
}

/// With mutex_ held. The key of the map is text of the slot.
void StateStore::erase(Slots::iterator slot) {
  by_key_.erase((*slot)->key);
  slots_.erase(slot);
}

/// With mutex_ held. A slot that only the list has is of no call.
void StateStore::drop_old() {
  while (!slots_.empty() && is_old(*slots_.front()) && slots_.front().use_count() == 1) erase(slots_.begin());
  for (auto slot = slots_.begin(); slots_.size() > most_keys_ && slot != slots_.end();) {
    const auto next = std::next(slot);
    if (slot->use_count() == 1) {
      erase(slot);
      ++dropped_;
    }
    slot = next;
  }
}

/// With mutex_ held: at the end.
StateStore::StateSlot& StateStore::add(std::string_view key) {
  Slots added = {std::make_shared<StateSlot>(key)};
  by_key_[added.back()->key] = added.begin();
  slots_.splice(slots_.end(), added);
  return *slots_.back();
}

std::shared_ptr<StateStore::StateSlot> StateStore::use(std::string_view key) {
  const std::lock_guard lock(mutex_);
  auto found = by_key_.find(key);
  if (found != by_key_.end() && is_old(**found->second) && found->second->use_count() == 1) {
    erase(found->second);
    found = by_key_.end();
  }
  if (found != by_key_.end())
    slots_.splice(slots_.end(), slots_, found->second);
  else
    add(key);
  std::shared_ptr<StateSlot> slot = slots_.back();
  slot->used = Clock::now();
  drop_old();
  return slot;
}

StateTurn::StateTurn(StateStore& store, std::string_view key,
                     std::optional<std::chrono::steady_clock::time_point> deadline, const std::string& policy)
    : store_(store), slot_(store.use(key)) {
  if (slot_->turn.is_held_here())
    throw PolicyError(fmt::format(
        "policy '{}' was called with the state key '{}' while it was running with it on the same thread (by "
        "a function of the host that it calls?); a policy cannot call itself: load its source as another policy for "
        "that",
        policy, key));
  if (!slot_->turn.lock(Deadline::nearest(deadline),
                        [&] { return fmt::format("policy '{}' with the state key '{}'", policy, key); }))
    throw capture::WaitedError(
        fmt::format("the deadline of the call passed while another call of policy '{}' was running with the state key "
                    "'{}'",
                    policy, key));
}

/// A key whose only calls failed is none.
StateTurn::~StateTurn() {
  slot_->turn.unlock();
  const std::lock_guard lock(store_.mutex_);
  const auto found = store_.by_key_.find(slot_->key);
  const bool is_unused = found != store_.by_key_.end() && *found->second == slot_ && !slot_->state;
  if (is_unused && slot_.use_count() == 2) store_.erase(found->second);
}

KeptState StateTurn::state() const {
  const std::lock_guard lock(store_.mutex_);
  return slot_->state;
}

void StateTurn::keep(KeptState state) {
  const std::lock_guard lock(store_.mutex_);
  slot_->state.swap(state);
  slot_->used = slot_->kept = StateStore::Clock::now();
}

}  // namespace triage::policy
