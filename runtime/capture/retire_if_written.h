#pragma once
#include <triage/front_end.h>

#include "runtime/capture/cache/entry_cache.h"

namespace triage::capture {

/// What a script writes to its own variables while nothing is recorded, no guard sees: graphs of before may be wrong
/// then, and are not used again, whether or not the script comes to its end.
class RetireIfWritten {
 public:
  RetireIfWritten(const Script& script, EntryCache& cache) : script_(script), cache_(cache), before_(script.writes()) {}
  ~RetireIfWritten() {
    if (armed_ && script_.writes() != before_) cache_.retire_all();
  }
  void dismiss() noexcept { armed_ = false; }
  RetireIfWritten(const RetireIfWritten&) = delete;
  RetireIfWritten& operator=(const RetireIfWritten&) = delete;

 private:
  const Script& script_;
  EntryCache& cache_;
  uint64_t before_;
  bool armed_ = true;
};

}  // namespace triage::capture
