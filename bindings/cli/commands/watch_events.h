#pragma once
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <triage/runtime.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/given.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/output.h"
#include "bindings/cli/terminal.h"

namespace triage::cli {

/// Events from the watching thread to the main one, which waits on `descriptor`.
class EventQueue {
 public:
  EventQueue() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~EventQueue() { ::close(descriptor_); }
  int descriptor() const { return descriptor_; }

  void push(const WatchEvent& event) {
    std::lock_guard lock(mutex_);
    events_.push_back(event);
    ::eventfd_write(descriptor_, 1);
  }
  std::deque<WatchEvent> take() {
    eventfd_t ignored;
    ::eventfd_read(descriptor_, &ignored);
    std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  int descriptor_;
  std::mutex mutex_;
  std::deque<WatchEvent> events_;
};

/// Ctrl-C as something to wait for. Must be made before any thread is: threads inherit which signals are blocked.
class StopSignal {
 public:
  StopSignal() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    descriptor_ = ::signalfd(-1, &signals, SFD_CLOEXEC);
  }
  ~StopSignal() { ::close(descriptor_); }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

/// One line: what happened to which file.
struct WatchEventLine {
  std::string event;
  std::string path;
  int version = 0;
  std::string hash, message;
  int line = 0;
};

void print_line(const WatchEventLine& line, bool json);

/// Until Ctrl-C: what happens in the folder, as `Follower` prints it. It loads what it follows, and looks again at what
/// could not be loaded, which no Watch follows.
template <class Follower>
int follow_events(const WatchCommand& options, const std::string& watched) {
  StopSignal stop;
  EventQueue events;
  Runtime runtime(quiet_runtime(options.json));
  define_given(runtime, options.call.given, c10::kCPU);
  Follower follower(runtime, options);
  follower.load();
  WatchOptions watch_options;
  watch_options.debounce = std::chrono::milliseconds(options.debounce_ms);
  watch_options.poll_interval = std::chrono::milliseconds(options.poll_ms);
  watch_options.on_event = [&](const WatchEvent& event) { events.push(event); };
  Watch watch = runtime.watch(options.folder, watch_options);
  if (!options.json) {
    say("{}\n", paint(Paint::faint, fmt::format("watching {}; press Ctrl-C to stop", watched)));
    flush(stdout);
  }
  pollfd waiting[] = {{stop.descriptor(), POLLIN, 0}, {events.descriptor(), POLLIN, 0}};
  while (true) {
    if (::poll(waiting, 2, follower.has_never_loaded() ? Follower::retry_ms : -1) < 0 && errno != EINTR)
      throw Error("cannot wait for events");
    if (waiting[0].revents) return 0;
    follower.retry();
    for (const WatchEvent& event : events.take()) follower.handle(event);
  }
}

}  // namespace triage::cli
