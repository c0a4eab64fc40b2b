#pragma once
#include <ATen/core/Tensor.h>

namespace triage::aot {

/// A copy of the state of the CPU's default generator.
at::Tensor random_state();

/// While alive, the generator goes on from `state` (undefined: from where it is); afterwards from where it was before. Does
/// nothing where that is not `needed`. What runs meanwhile draws the same numbers again, and none that others would have
/// got. Other threads that draw at the same time draw from the same generator.
class ReplayRandom {
 public:
  explicit ReplayRandom(bool needed, const at::Tensor& state = {});
  ~ReplayRandom();
  ReplayRandom(const ReplayRandom&) = delete;
  ReplayRandom& operator=(const ReplayRandom&) = delete;

 private:
  at::Tensor before_;
};

}  // namespace triage::aot
