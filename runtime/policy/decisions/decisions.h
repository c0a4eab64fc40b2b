#pragma once
#include "runtime/messages/logs/rotating_file.h"
#include "runtime/policy/decisions/decision_line.h"
#include "runtime/policy/process.h"
#include "runtime/policy/share.h"

#include <triage/runtime.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

namespace triage::policy {

/// What is behind a DecisionLog: decisions and events that wait, and the thread that writes them. The thread keeps it
/// alive, so that the log may be destroyed in `on_line`. In a forked child, which has no such thread, all that touches
/// the queue does nothing.
class DecisionQueue : public std::enable_shared_from_this<DecisionQueue> {
 public:
  /// Throws ConfigError, FileError. Then `start`; `close` before the last owner but the thread lets go.
  explicit DecisionQueue(DecisionLogOptions options);
  static DecisionQueue& of(DecisionLog& log) noexcept { return *log.queue_; }

  void start();
  /// Writes what waits and ends the thread.
  void close() noexcept;

  // For calls:
  const DecisionLogOptions& options() const noexcept { return options_; }
  /// Whether a call that nothing is wrong with gets a line.
  bool takes_clean(std::string_view decision_id) noexcept { return clean_calls_.takes(decision_id); }
  void note(Decision&& decision) noexcept { note_entry(std::move(decision), options_.queue_records); }
  /// Has room of its own in the queue: a flood of decisions is when somebody will ask what has changed.
  void note(PolicyEvent&& event) noexcept {
    if (options_.events) note_entry(std::move(event), options_.queue_records + room_for_events);
  }
  /// One more decision that is not written.
  void drop() noexcept;
  /// Where capsules go; null where calls need not be recorded.
  DecisionCapsules* capsules() noexcept { return capsules_.open() ? &capsules_ : nullptr; }
  /// What is noted from now on is dropped, and not counted.
  void stop_noting() noexcept;

  void flush() noexcept;
  DecisionCounts counts() const noexcept;

 private:
  static constexpr size_t room_for_events = 64;
  using LogEntry = std::variant<Decision, PolicyEvent>;
  using Batch = std::vector<LogEntry>;
  using Time = std::chrono::system_clock::time_point;
  /// Decisions that were dropped and not yet told of in the log.
  struct Lost {
    uint64_t count = 0;
    Time since;
    void add(const Lost& more) {
      if (count == 0) since = more.since;
      count += more.count;
    }
  };
  /// Of a batch, what is written.
  struct Fine {
    uint64_t decisions = 0, events = 0;
  };

  void note_entry(LogEntry&& entry, size_t room) noexcept;
  void work();
  void write(Batch& batch, const Lost& lost) noexcept;
  void write_all(Batch& batch, Fine& fine) noexcept;
  bool write_entry(LogEntry& entry);
  void tell_lost() noexcept;
  bool put(const std::string& line) noexcept;
  template <class Act>
  bool with_file(const Act& act) noexcept;
  void tell_failure(bool& told, const char* what, const char* why) noexcept;
  void drop_locked() noexcept;

  const Process process_;
  const DecisionLogOptions options_;
  const messages::Logger logger_;
  const DecisionLines lines_;
  DecisionCapsules capsules_;
  ShareOfCalls clean_calls_;

  // Of the thread:
  std::unique_ptr<messages::RotatingFile> file_;
  bool file_works_ = false;
  bool told_file_ = false, told_callback_ = false;
  Lost untold_;
  Batch writing_;

  std::atomic<uint64_t> written_{0}, dropped_{0}, failed_{0};

  std::mutex mutex_;  // short: what follows
  std::condition_variable more_, done_;
  Batch waiting_;
  Lost lost_;
  uint64_t noted_ = 0, finished_ = 0;
  size_t flushing_ = 0;
  enum class Thread : uint8_t { writes, waits, lingers } doing_ = Thread::writes;
  bool stop_ = false, taking_ = true;
  std::thread thread_;
};

}  // namespace triage::policy
