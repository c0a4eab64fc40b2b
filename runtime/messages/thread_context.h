#pragma once
#include <atomic>
#include <cstdint>
#include <string>

namespace triage::messages {

class Logger;

/// What messages of this thread are about: of each kind the innermost scope that is alive, which sets the field and
/// puts it back.
struct MessageThreadContext {
  const Logger* logger;             // LogTo
  int64_t graph;                    // TraceScope
  const std::string* debug_folder;  // DebugScope
  int programs_that_run;            // how many InRepro
  int64_t number;                   // thread_number
};

/// Of the thread, because kernels, passes and backends deep below a Runtime write messages, and are handed none of
/// this.
inline thread_local constinit MessageThreadContext context{};

/// From 1 on, in the order in which threads asked.
inline int64_t thread_number() noexcept {
  static std::atomic<int64_t> last{0};
  if (context.number == 0) context.number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return context.number;
}

}  // namespace triage::messages
