#include "runtime/policy/versions/reclaimer.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <set>

#include "runtime/messages/assert.h"

#include "runtime/policy/versions/epochs.h"

namespace triage::policy {

size_t thread_stripe() noexcept {
  static std::atomic<size_t> next{0};
  // A thread keeps to its stripe, so that threads which read do not write to one cache line.
  thread_local const size_t mine = next.fetch_add(1, std::memory_order_relaxed);
  return mine;
}

bool Grace::passed(const Epochs& epochs) noexcept {
  for (size_t phase = 0; phase < 2; ++phase) {
    for (size_t stripe = 0; stripe < Epochs::stripe_count; ++stripe) {
      const uint32_t bit = 1u << stripe;
      if ((pending_[phase] & bit) && epochs.empty(phase, stripe)) pending_[phase] &= ~bit;
    }
  }
  return pending_[0] == 0 && pending_[1] == 0;
}

Reclaimer::Reclaimer() : thread_([this] { loop(); }) {}

Reclaimer::~Reclaimer() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  TRIAGE_ASSERT(items_.empty());
}

void Reclaimer::retire(std::shared_ptr<Epochs> epochs, std::shared_ptr<void> garbage) {
  {
    std::lock_guard lock(mutex_);
    items_.push_back({std::move(epochs), Grace{}, std::move(garbage)});
  }
  wake_.notify_all();
}

bool Reclaimer::discard(std::shared_ptr<void>& garbage) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    items_.push_back({nullptr, Grace{}, std::move(garbage)});
  }
  wake_.notify_all();
  return true;
}

void Reclaimer::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  idle_.wait(lock, [this] { return items_.empty() && !busy_; });
}

void Reclaimer::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_ || !items_.empty()) {
    std::vector<Item> ripe;
    try {
      ripe = take_ripe();
    } catch (const std::bad_alloc&) {  // this thread has nobody to tell: later
      wake_.wait_for(lock, std::chrono::milliseconds(2));
      continue;
    }
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

/// Where memory is short it throws, and has taken nothing.
std::vector<Reclaimer::Item> Reclaimer::take_ripe() {
  std::set<Epochs*> flipped;
  std::vector<Item> ripe;
  std::vector<bool> is_ripe;
  ripe.reserve(items_.size());
  for (Item& item : items_) {
    is_ripe.push_back(!item.epochs || item.grace.passed(*item.epochs));
    if (!is_ripe.back() && flipped.insert(item.epochs.get()).second) item.epochs->flip();
  }
  auto kept = items_.begin();
  for (size_t i = 0; i < is_ripe.size(); ++i) {
    Item& item = items_[i];
    if (is_ripe[i]) {
      ripe.push_back(std::move(item));
    } else {
      if (&*kept != &item) *kept = std::move(item);
      ++kept;
    }
  }
  items_.erase(kept, items_.end());
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
