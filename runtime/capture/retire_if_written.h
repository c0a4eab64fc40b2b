#pragma once
#include <runtime/capture/compiled.h>

namespace triage::capture {

/// What a script writes to its own variables while nothing is recorded, no guard sees: graphs of before may be wrong then, and
/// are not used again, whether or not the script comes to its end.
class Compiled::RetireIfWritten {
 public:
  explicit RetireIfWritten(Compiled& compiled) : compiled_(compiled), before_(compiled.script_->writes()) {}
  ~RetireIfWritten() {
    if (armed_ && compiled_.script_->writes() != before_) compiled_.newest_.store(nullptr, std::memory_order_release);
  }
  void dismiss() noexcept { armed_ = false; }
  RetireIfWritten(const RetireIfWritten&) = delete;
  RetireIfWritten& operator=(const RetireIfWritten&) = delete;

 private:
  Compiled& compiled_;
  uint64_t before_;
  bool armed_ = true;
};

}  // namespace triage::capture
