#include "bindings/c/callbacks.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

namespace triage::c {
namespace {

std::atomic<int> threads_at_work{0};
std::atomic<pid_t> their_process{0};

void destroy_all(Freed* first) noexcept {
  while (first) {
    Freed& freed = *std::exchange(first, first->next);
    freed.destroy(freed.handle);
  }
}

}  // namespace

void destroy_freed() noexcept {
  while (context.stack.freed) destroy_all(std::exchange(context.stack.freed, nullptr));
}

/// Where no thread can be made, it stays: the end of the process destroys it.
void destroy_freed_elsewhere() noexcept {
  Freed* const first = std::exchange(context.stack.freed, nullptr);
  their_process = ::getpid();
  ++threads_at_work;
  try {
    std::thread([first] {
      const InCall as_any_other;
      destroy_all(first);
      --threads_at_work;
    }).detach();
  } catch (const std::system_error&) {
    --threads_at_work;
  }
}

void wait_until_destroyed() noexcept {
  // A forked child has no such threads, whatever its parent counted.
  while (threads_at_work > 0 && their_process == ::getpid()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace triage::c
