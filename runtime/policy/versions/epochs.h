#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "runtime/policy/thread_stripe.h"

/// Readers of a shared pointer without locks, and without a reference count that all of them would fight over.
///
/// A reader is counted while it uses what the pointer gave it. Whoever replaces the pointer may free the old object
/// once every counter has been seen at zero after the replacement: a reader that was counted before has left by then,
/// and one that is counted later reads the new pointer (all of it is sequentially consistent). Counters are striped
/// over threads, so that two threads rarely touch one cache line, and kept for two phases: new readers are sent to one
/// phase while the other drains, so that a steady stream of readers cannot hold a counter above zero for ever.
namespace triage::policy {

class Epochs {
 public:
  static constexpr size_t stripe_count = 16;

  /// Counts the current thread as a reader; construct it *before* loading the pointer. Nests.
  class Reading {
   public:
    explicit Reading(Epochs& epochs) noexcept
        : readers_(
              epochs.stripes_[thread_stripe(stripe_count)].readers[epochs.phase_.load(std::memory_order_relaxed)]) {
      readers_.fetch_add(1, std::memory_order_seq_cst);
    }
    ~Reading() { readers_.fetch_sub(1, std::memory_order_seq_cst); }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

   private:
    std::atomic<uint32_t>& readers_;
  };

  /// Sends new readers to the other phase, once for each `look` (1, 2, ...) of the one thread that calls it.
  void flip(uint64_t look) noexcept {
    if (std::exchange(flipped_, look) != look)
      phase_.store(phase_.load(std::memory_order_relaxed) ^ 1u, std::memory_order_relaxed);
  }
  bool empty(size_t phase, size_t stripe) const noexcept {
    return stripes_[stripe].readers[phase].load(std::memory_order_seq_cst) == 0;
  }

 private:
  struct alignas(64) ReaderStripe {
    std::atomic<uint32_t> readers[2] = {0, 0};
  };

  std::atomic<uint32_t> phase_{0};
  uint64_t flipped_ = 0;  // the latest look in which it was
  std::array<ReaderStripe, stripe_count> stripes_;
};

/// The wait for all who might still read a pointer that has been replaced. Make it after the replacement.
class Grace {
 public:
  /// Looks at the counters once; true when everybody who could have the old pointer has left.
  bool passed(const Epochs& epochs) noexcept;

 private:
  static constexpr uint32_t all_stripes = (1u << Epochs::stripe_count) - 1;
  std::array<uint32_t, 2> pending_ = {all_stripes, all_stripes};  // a bit for each stripe not yet seen at zero
};

}  // namespace triage::policy
