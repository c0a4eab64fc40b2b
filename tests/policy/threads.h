#pragma once
#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "tests/policy/fake_script.h"

namespace triage::test {

/// Threads that do something over and over while the test does something else. What they throw, and what they find
/// wrong, is what `end` tells.
class Threads {
 public:
  Threads() = default;
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() { end(); }

  /// One more thread: `body(0)`, `body(1)`, ... until the end, or until it throws.
  void add(std::function<void(int round)> body) {
    Running& one = running_.emplace_back();
    one.thread = std::thread([this, &one, body = std::move(body)] {
      fake::is_caller = true;
      try {
        while (!stop_) {
          body(one.rounds);
          ++one.rounds;
        }
      } catch (const std::exception& error) {
        expect(false, error.what());
      }
    });
  }

  /// The first one of these that does not hold is what `end` returns.
  void expect(bool holds, const std::string& what) {
    if (holds) return;
    const std::lock_guard lock(mutex_);
    if (wrong_.empty()) wrong_ = what;
    failed_ = true;
  }

  /// Until each thread has gone round so many times more: so all of them have met what was there at the call.
  bool go_round(int times = 2) {
    std::deque<int> seen;
    for (const Running& one : running_) seen.push_back(one.rounds);
    return fake::eventually([&] {
      for (size_t i = 0; i < seen.size(); ++i)
        if (running_[i].rounds < seen[i] + times) return failed_.load();
      return true;
    });
  }

  /// Ends all of them. Empty where nothing went wrong.
  std::string end() {
    stop_ = true;
    for (Running& one : running_)
      if (one.thread.joinable()) one.thread.join();
    return wrong_;
  }

 private:
  struct Running {
    std::atomic<int> rounds{0};
    std::thread thread;
  };
  std::atomic<bool> stop_{false}, failed_{false};
  std::deque<Running> running_;  // grows while they run: a deque moves none
  std::mutex mutex_;
  std::string wrong_;
};

}  // namespace triage::test
