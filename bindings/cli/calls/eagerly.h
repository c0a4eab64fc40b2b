#pragma once
#include <triage/compiler_config.h>

namespace triage::cli {

/// While alive, functions that scripts compile run operator by operator.
class Eagerly {
 public:
  Eagerly() : before_(get_stance()) { set_stance(Stance::force_eager); }
  ~Eagerly() { set_stance(before_); }
  Eagerly(const Eagerly&) = delete;
  Eagerly& operator=(const Eagerly&) = delete;

 private:
  Stance before_;
};

}  // namespace triage::cli
