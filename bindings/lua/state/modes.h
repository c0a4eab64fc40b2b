#pragma once
#include "runtime/compat/autocast.h"

#include <c10/core/GradMode.h>

namespace triage::lua {

/// Grad mode and autocast of this thread as they are when this is made: what a script may leave behind.
struct Modes {
  bool grad = c10::GradMode::is_enabled();
  compat::AutocastNow autocast = {};

  void restore() const {
    c10::GradMode::set_enabled(grad);
    autocast.restore();
  }
};

/// Puts them back when destroyed.
struct KeepModes {
  KeepModes() = default;
  ~KeepModes() { before.restore(); }
  KeepModes(const KeepModes&) = delete;
  KeepModes& operator=(const KeepModes&) = delete;

  const Modes before = {};
};

}  // namespace triage::lua
