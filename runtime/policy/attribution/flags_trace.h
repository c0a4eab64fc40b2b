#pragma once
#include <ATen/core/Tensor.h>
#include <triage/flags.h>

#include <unistd.h>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace triage::policy {

/// Counts what the flags in a policy's answers say, by location and code, and tells the trace, at most ten times a
/// second. Flags on another device than the CPU are looked at as often only, since that waits for the device.
/// Thread-safe.
class FlagsTrace {
 public:
  FlagsTrace() = default;
  ~FlagsTrace() { flush(); }
  FlagsTrace(const FlagsTrace&) = delete;
  FlagsTrace& operator=(const FlagsTrace&) = delete;

  void set_policy(const std::string& name) { policy_ = name; }
  /// `is_flags`: which of the outputs.
  /// `codes`: what the version that answered calls the free codes.
  void note(at::ArrayRef<at::Tensor> outputs, const std::vector<bool>& is_flags, const CodeNames& codes) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  void add(const at::Tensor& f, const CodeNames& codes);
  void flush() noexcept;
  void write_locked();

  std::string policy_;
  std::mutex mutex_;                 // what follows
  int64_t calls_ = 0, samples_ = 0;  // since the last event
  flags::Summary counts_;
  std::optional<Clock::time_point> told_;  // the last event
  pid_t process_ = ::getpid();             // a forked child has counted nothing yet
};

}  // namespace triage::policy
