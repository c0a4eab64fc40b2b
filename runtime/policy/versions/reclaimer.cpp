#include "runtime/policy/versions/reclaimer.h"

#include <chrono>
#include <iterator>
#include <new>
#include <utility>

#include "runtime/messages/assert.h"

#include "runtime/messages/start_thread.h"
#include "runtime/policy/versions/epochs.h"

namespace triage::policy {

bool Grace::passed(const Epochs& epochs) noexcept {
  for (size_t phase = 0; phase < 2; ++phase) {
    for (size_t stripe = 0; stripe < Epochs::stripe_count; ++stripe) {
      const uint32_t bit = 1u << stripe;
      if ((pending_[phase] & bit) && epochs.empty(phase, stripe)) pending_[phase] &= ~bit;
    }
  }
  return pending_[0] == 0 && pending_[1] == 0;
}

Reclaimer::Reclaimer()
    : thread_(messages::start_thread([this] { loop(); }, "to free old versions of policies",
                                     "This Runtime cannot be made; those that the process has go on")) {}

Reclaimer::~Reclaimer() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  TRIAGE_ASSERT(items_.empty());
}

Reclaimer::Garbage Reclaimer::garbage(std::shared_ptr<Epochs> epochs, std::shared_ptr<void> object) {
  Garbage made;
  made.item_.push_back({std::move(epochs), Grace{}, std::move(object)});
  return made;
}

/// The wait begins here, not where the garbage was made.
void Reclaimer::retire(Garbage garbage) noexcept {
  if (process_.is_another()) {
    new (std::nothrow)
        Items(std::move(garbage.item_));  // a thread of the parent may have been at work with it: it stays
    return;
  }
  {
    std::lock_guard lock(mutex_);
    items_.splice(items_.end(), garbage.item_);
  }
  wake_.notify_all();
}

bool Reclaimer::discard(std::shared_ptr<void>& garbage) {
  Garbage made = Reclaimer::garbage(nullptr, garbage);
  {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    garbage.reset();
    items_.splice(items_.end(), made.item_);
  }
  wake_.notify_all();
  return true;
}

void Reclaimer::close() {
  if (process_.is_another()) return;
  std::unique_lock lock(mutex_);
  closed_ = true;
  idle_.wait(lock, [this] { return items_.empty() && !busy_; });
}

void Reclaimer::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_ || !items_.empty()) {
    Items ripe = take_ripe();
    if (!ripe.empty()) {
      busy_ = true;
      lock.unlock();
      ripe.clear();  // destructors of policies and versions run here, without the lock
      lock.lock();
      busy_ = false;
      continue;
    }
    if (items_.empty()) idle_.notify_all();
    wait(lock);
  }
  idle_.notify_all();
}

Reclaimer::Items Reclaimer::take_ripe() noexcept {
  Items ripe;
  ++looks_;
  for (auto item = items_.begin(); item != items_.end();) {
    const auto next = std::next(item);
    if (!item->epochs || item->grace.passed(*item->epochs))
      ripe.splice(ripe.end(), items_, item);
    else
      item->epochs->flip(looks_);
    item = next;
  }
  return ripe;
}

void Reclaimer::wait(std::unique_lock<std::mutex>& lock) {
  if (!items_.empty()) {
    wake_.wait_for(lock, std::chrono::milliseconds(2));  // readers leave without telling anybody
  } else if (!stopping_) {
    wake_.wait(lock, [this] { return stopping_ || !items_.empty(); });
  }
}

}  // namespace triage::policy
