#pragma once
#include "bindings/c/thread_context.h"

/// Callbacks of the host may free handles. triage calls some of them in the middle of its work, when the thread holds
/// locks or goes on to use what was freed: nothing is destroyed inside those.
namespace triage::c {

/// Destroys what callbacks of this thread have freed.
void destroy_freed() noexcept;
/// The same on a thread of its own, for a thread of triage, which cannot wait for itself.
void destroy_freed_elsewhere() noexcept;
/// Returns when no other thread is at that.
void wait_until_destroyed() noexcept;

/// While alive, this thread is in a function of the table.
class InCall {
 public:
  InCall() noexcept { ++context.stack.calls; }
  ~InCall() {
    if (context.stack.freed && context.stack.calls == 1 && context.stack.callbacks == 0) destroy_freed();
    --context.stack.calls;
  }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;
};

/// While alive, this thread is in a callback of the host.
class InCallback {
 public:
  InCallback() noexcept { ++context.stack.callbacks; }
  ~InCallback() {
    if (--context.stack.callbacks == 0 && context.stack.calls == 0 && context.stack.freed) destroy_freed_elsewhere();
  }
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;
};

/// Destroys it now, or if this thread is in a callback, when the outermost call has come to its end.
inline void destroy_after_callbacks(Freed& freed) noexcept {
  if (context.stack.callbacks == 0) return freed.destroy(freed.handle);
  freed.next = context.stack.freed;
  context.stack.freed = &freed;
}

}  // namespace triage::c
