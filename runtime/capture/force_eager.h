#pragma once
#include <triage/compiler_config.h>

namespace triage::capture {

/// While alive, functions that scripts compile run operator by operator, as by `set_stance(Stance::force_eager)`.
class ForceEager {
 public:
  ForceEager() : before_(get_stance()) { set_stance(Stance::force_eager); }
  ~ForceEager() { set_stance(before_); }
  ForceEager(const ForceEager&) = delete;
  ForceEager& operator=(const ForceEager&) = delete;

 private:
  Stance before_;
};

}  // namespace triage::capture
