#pragma once
#include <unistd.h>

namespace triage::policy {

/// The process that made an object with a thread. A forked child inherits the object without the thread: whoever waited
/// for it there would wait for ever, and a mutex that another thread held at the fork stays locked. So what was
/// inherited is left as it is.
class Process {
 public:
  bool is_another() const noexcept { return ::getpid() != id_; }

 private:
  const pid_t id_ = ::getpid();
};

}  // namespace triage::policy
