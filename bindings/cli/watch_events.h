#pragma once
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <triage/runtime.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

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
struct Line {
  std::string event;
  std::string path;
  int version = 0;
  std::string hash, message;
  int line = 0;
};

void print_line(const Line& line, bool json);

}  // namespace triage::cli
