#pragma once
#include <triage/backend.h>
#include <triage/compile_times.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

namespace triage::capture {

/// Adds up the time that goes into graphs. Thread-safe; a capture and what the backend does for it are on one thread.
class CompileClock : public std::enable_shared_from_this<CompileClock> {
  using Clock = std::chrono::steady_clock;

 public:
  CompileTimes times() const noexcept { return {seconds(capture_), seconds(backend_)}; }

  /// A capture goes on while it lives. What the backend takes meanwhile is not counted as capture, too.
  class Capturing {
   public:
    explicit Capturing(CompileClock& clock) : clock_(clock), backend_before_(clock.backend_) {}
    ~Capturing() { clock_.capture_ += since(start_) - (clock_.backend_ - backend_before_); }
    Capturing(const Capturing&) = delete;
    Capturing& operator=(const Capturing&) = delete;

   private:
    CompileClock& clock_;
    int64_t backend_before_;
    Clock::time_point start_ = Clock::now();
  };

  /// The backend, counted from now on, even where it fails.
  Backend timed(Backend backend) {
    return [clock = shared_from_this(), backend = std::move(backend)](const graph::Graph& graph,
                                                                      const std::vector<at::Tensor>& examples) {
      const Compiling compiling(*clock);
      return backend(graph, examples);
    };
  }

 private:
  struct Compiling {
    explicit Compiling(CompileClock& clock) : clock(clock) {}
    ~Compiling() { clock.backend_ += since(start); }
    Compiling(const Compiling&) = delete;
    Compiling& operator=(const Compiling&) = delete;
    CompileClock& clock;
    Clock::time_point start = Clock::now();
  };
  static int64_t since(Clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  }
  static double seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

  std::atomic<int64_t> capture_{0}, backend_{0};  // nanoseconds
};

}  // namespace triage::capture
