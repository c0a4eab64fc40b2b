#pragma once
#include "bindings/c/callbacks.h"

#include <triage_c.h>

#include <stdexcept>
#include <string>

/// Exceptions as a status and the last error of the thread: nothing else leaves the library.
namespace triage::c {

/// The host misused this interface. The message lacks the function's name, which `guarded` adds.
struct Misuse : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// For a `catch` block: makes the exception that is handled the last error of this thread, and returns its status.
TriageStatus failed(const char* function) noexcept;
const TriageError* last_error() noexcept;
const char* status_name(TriageStatus status) noexcept;

template <class Fn>
TriageStatus guarded(const char* function, const Fn& fn) noexcept {
  const InCall here;
  try {
    fn();
    return TRIAGE_OK;
  } catch (...) {
    return failed(function);
  }
}

}  // namespace triage::c
