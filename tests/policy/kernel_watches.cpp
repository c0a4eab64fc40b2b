#include "tests/policy/kernel_watches.h"

#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace {

std::atomic<bool> refused{false};

}  // namespace

void fake::refuse_watches(bool refuse) { refused = refuse; }

// What this program calls in place of the library's function.
extern "C" int inotify_add_watch(int fd, const char* path, uint32_t mask) noexcept {
  if (!refused) return static_cast<int>(::syscall(SYS_inotify_add_watch, fd, path, mask));
  errno = ENOSPC;
  return -1;
}
