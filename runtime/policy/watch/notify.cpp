#include "runtime/policy/watch/notify.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <triage/error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

namespace triage::policy {
namespace {

// Not IN_MODIFY: a file that is being written is of no interest before it is closed. Files are watched as well as their
// folders, which are not told of a write through another hard link.
constexpr uint32_t changes =
    IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF;

bool is_absent(int code) { return code == ENOENT || code == ENOTDIR || code == ELOOP || code == ENAMETOOLONG; }

std::string refusal(int code, const char* limit) {
  const bool limited = code == ENOSPC || code == EMFILE;
  return fmt::format("{}{}", std::strerror(code),
                     limited ? fmt::format(" (raise {}, or set WatchOptions::poll_interval)", limit) : "");
}

}  // namespace

Notifier::Notifier(bool use_kernel) : use_kernel_(use_kernel), alarm_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (alarm_ < 0) throw FileError(fmt::format("cannot watch files: eventfd: {}", std::strerror(errno)));
}

Notifier::~Notifier() {
  close();
  ::close(alarm_);
}

void Notifier::close() {
  if (inotify_ >= 0) ::close(inotify_);
  inotify_ = -1;
}

Notifier::WatchResult Notifier::watch(const std::set<std::filesystem::path>& places) {
  WatchResult result;
  if (!use_kernel_) return result;
  if (inotify_ < 0) {
    inotify_ = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (inotify_ < 0)
      return {false, "inotify: " + refusal(errno, "fs.inotify.max_user_instances or the limit of open files")};
  }
  std::map<std::filesystem::path, int> now;
  std::set<int> used;
  for (const auto& place : places) {
    const int watch = ::inotify_add_watch(inotify_, place.c_str(), changes);
    if (watch >= 0) {
      used.insert(now[place] = watch);
    } else if (!is_absent(errno)) {
      result.failures += fmt::format("{}{}: {}", result.failures.empty() ? "" : "; ", place.string(),
                                     refusal(errno, "fs.inotify.max_user_watches"));
    }
  }
  for (const auto& [place, watch] : watches_)
    if (used.insert(watch).second) ::inotify_rm_watch(inotify_, watch);  // fails where it ended with its file
  result.changed = now != watches_;
  watches_ = std::move(now);
  return result;
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

/// Which files changed does not matter: any event, an overflow of the queue too, leads to a look at all of them.
bool Notifier::drain() {
  alignas(inotify_event) char buffer[16 * (sizeof(inotify_event) + NAME_MAX + 1)];
  bool any = false;
  for (;;) {
    const ssize_t got = ::read(inotify_, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return any;
    any = true;
  }
}

void Notifier::wake() {
  const uint64_t one = 1;
  while (::write(alarm_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

}  // namespace triage::policy
