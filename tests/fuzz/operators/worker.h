#pragma once
#include "tests/fuzz/operators/call.h"

#include <sys/types.h>

#include <atomic>

/// Calls in a process of their own, which may die of them.
namespace triage::fuzz {

/// What is known of one call, in memory that processes share.
struct Record {
  Outcome outcome;
  uint64_t digest;
  uint64_t nanoseconds;
  char text[1600];  // of the error, or how the process died
  char fault[320];  // empty: none
};

struct WorkerOptions {
  uint64_t seed = 0;
  double hang_seconds = 2;            // of processor time, for one call
  int most_deaths = 6;                // of one target in a run, which is then left out
  uint64_t extra_bytes = 3ull << 30;  // of address space, beyond what the process has at its start
};

/// Makes calls `first` to `first + count - 1` (call i is of target i % targets.size()); new processes go on after those
/// that died.
class Worker {
 public:
  Worker(const std::vector<Target>& targets, WorkerOptions options, size_t most_calls);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// `fill`: of new memory. A target whose entry in `skipped` is set is left out. The records are good until the next
  /// run.
  const Record* run(int64_t first, size_t count, unsigned char fill, const std::vector<bool>& skipped);

 private:
  struct Shared {
    std::atomic<int64_t> current;
    Record records[1];
  };
  [[noreturn]] void work(int64_t first, int64_t from, int64_t end, unsigned char fill,
                         const std::vector<bool>& skipped);
  /// How the process ended; empty where it did all its calls.
  std::string watch(pid_t process, int pipe);
  std::string last_words() const;

  const std::vector<Target>& targets_;
  WorkerOptions options_;
  size_t shared_bytes_;
  Shared* shared_;
  int words_;  // the standard error of workers
};

}  // namespace triage::fuzz
