#include "runtime/policy/notify.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <triage/error.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

namespace triage::policy {
namespace {

// Not IN_MODIFY: a file that is being written is of no interest before it is closed.
constexpr uint32_t changes = IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_ATTRIB |
                             IN_MOVE_SELF | IN_DELETE_SELF | IN_ONLYDIR;

[[noreturn]] void refuse(const char* what) {
  const int code = errno;
  throw FileError(
      fmt::format("cannot watch files: {}: {}{}", what, std::strerror(code),
                  code == EMFILE ? "; raise fs.inotify.max_user_instances, or set WatchOptions::poll_interval" : ""));
}

}  // namespace

Notifier::Notifier(bool use_kernel) : alarm_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (alarm_ < 0) refuse("eventfd");
  if (!use_kernel) return;
  inotify_ = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (inotify_ >= 0) return;
  ::close(alarm_);
  refuse("inotify_init1");
}

Notifier::~Notifier() {
  if (inotify_ >= 0) ::close(inotify_);
  ::close(alarm_);
}

std::string Notifier::watch(const std::set<std::filesystem::path>& dirs) {
  if (inotify_ < 0) return {};
  for (auto known = watches_.begin(); known != watches_.end();) {
    const auto next = std::next(known);
    if (!dirs.count(known->first)) forget(known->first);
    known = next;
  }
  std::string failures;
  for (const auto& dir : dirs) {
    if (watches_.count(dir)) continue;
    const int watch = ::inotify_add_watch(inotify_, dir.c_str(), changes);
    if (watch >= 0) {
      watches_[dir] = watch;
    } else {
      failures += fmt::format(
          "{}{}: {}{}", failures.empty() ? "" : "; ", dir.string(), std::strerror(errno),
          errno == ENOSPC ? " (raise fs.inotify.max_user_watches, or set WatchOptions::poll_interval)" : "");
    }
  }
  return failures;
}

void Notifier::forget(const std::filesystem::path& dir) {
  const auto known = watches_.find(dir);
  if (known == watches_.end()) return;
  const int watch = known->second;
  watches_.erase(known);
  for (const auto& other : watches_)
    if (other.second == watch) return;  // two paths to one directory share its watch
  ::inotify_rm_watch(inotify_, watch);  // fails when the directory is gone, which took the watch with it
}

bool Notifier::wait(std::chrono::milliseconds timeout) {
  pollfd waiting[2] = {{alarm_, POLLIN, 0}, {inotify_, POLLIN, 0}};
  if (::poll(waiting, inotify_ >= 0 ? 2 : 1, static_cast<int>(std::min<int64_t>(timeout.count(), INT_MAX))) <= 0)
    return false;
  if (waiting[0].revents) {
    uint64_t count;
    while (::read(alarm_, &count, sizeof count) < 0 && errno == EINTR) {
    }
  }
  return inotify_ >= 0 && waiting[1].revents && drain();
}

/// Which files changed does not matter: any event, an overflow of the queue too, leads to a look at all of them. Only
/// the end of a watch is of interest: the next call of `watch` finds that directory anew.
bool Notifier::drain() {
  alignas(inotify_event) char buffer[16 * (sizeof(inotify_event) + NAME_MAX + 1)];
  bool any = false;
  for (;;) {
    const ssize_t got = ::read(inotify_, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return any;
    any = true;
    for (ssize_t at = 0; at < got;) {
      inotify_event event;
      std::memcpy(&event, buffer + at, sizeof event);
      at += static_cast<ssize_t>(sizeof event + event.len);
      if (event.mask & IN_MOVE_SELF) ::inotify_rm_watch(inotify_, event.wd);  // it would follow the directory
      if (event.mask & (IN_MOVE_SELF | IN_IGNORED))
        std::erase_if(watches_, [&](const auto& known) { return known.second == event.wd; });
    }
  }
}

void Notifier::wake() {
  const uint64_t one = 1;
  while (::write(alarm_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

}  // namespace triage::policy
