#pragma once
#include <alloca.h>
#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "runtime/capture/thread_stack.h"

/// A thread that has as little stack as a test wants.
namespace triage::lua::testing {

class SmallStack {
 public:
  /// Runs `body` on a thread that has `left` bytes of stack left there. Returns how many of them were written to.
  static size_t run(size_t left, const std::function<void()>& body) {
    SmallStack job{left, body};
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, left + (size_t{4} << 20));
    pthread_t thread;
    const int failed = ::pthread_create(&thread, &attributes, start, &job);
    ::pthread_attr_destroy(&attributes);
    if (failed) throw std::runtime_error("no thread");
    ::pthread_join(thread, nullptr);
    return job.used_;
  }

 private:
  SmallStack(size_t left, const std::function<void()>& body) : left_(left), body_(body) {}

  static void* start(void* job) {
    auto& own = *static_cast<SmallStack*>(job);
    auto* const surplus = static_cast<volatile char*>(alloca(capture::stack_left() - own.left_));
    *surplus = 0;
    own.measure();
    return nullptr;
  }

  [[gnu::noinline]] void measure() {
    constexpr size_t own_frames = 2048;
    constexpr char paint = '\x5a';
    char* const here = static_cast<char*>(__builtin_frame_address(0));
    char* const low = here - capture::stack_left();
    std::memset(low, paint, static_cast<size_t>(here - low) - own_frames);
    body_();
    used_ = static_cast<size_t>(here - std::find_if(low, here, [](char c) { return c != paint; }));
  }

  const size_t left_;
  const std::function<void()>& body_;
  size_t used_ = 0;
};

}  // namespace triage::lua::testing
