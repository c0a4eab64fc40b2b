#pragma once
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace triage::policy {

struct CandidateThreadState;

/// The thread of a Runtime that works for candidates: it runs those in the shadow, promotes, and calls the host. It
/// starts with the first candidate. Nothing that a call does here waits.
class CandidateThread {
 public:
  using Task = std::function<void()>;

  CandidateThread();
  ~CandidateThread();
  CandidateThread(const CandidateThread&) = delete;
  CandidateThread& operator=(const CandidateThread&) = delete;

  /// False once `close` was called, and in a forked child.
  bool start();
  /// Before all calls that wait. False, and nothing is done, where the thread does not run. Exceptions of `task` are
  /// dropped.
  bool post(Task task) { return add(std::move(task), /*call=*/false); }

  /// Room for one call that waits; given back when it is destroyed.
  class Room {
   public:
    Room() = default;
    Room(Room&& other) noexcept;
    Room& operator=(Room&& other) noexcept;
    ~Room();
    explicit operator bool() const noexcept { return state_ != nullptr; }

   private:
    friend class CandidateThread;
    std::shared_ptr<CandidateThreadState> state_;
    size_t bytes_ = 0;
  };
  /// None where more than `most_calls` calls or `most_bytes` bytes would wait, or the thread does not run.
  Room reserve(size_t bytes, size_t most_calls, size_t most_bytes) noexcept;
  /// Behind all others. The task holds its Room.
  bool post_call(Task task) { return add(std::move(task), /*call=*/true); }

  /// Refuses all from now on, waits for the task that runs, unless called from it, and drops those that wait.
  void close() noexcept;

 private:
  static void loop(const std::shared_ptr<CandidateThreadState>& state);
  bool add(Task task, bool call);
  static void close(CandidateThreadState& state) noexcept;
  const std::shared_ptr<CandidateThreadState> state_;
  std::shared_ptr<const void> exit_;
};

}  // namespace triage::policy
