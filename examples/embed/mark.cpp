// The runtime without Lua: marks bad samples with the operations that policies use, and repairs them.
#include <ATen/ATen.h>
#include <triage/triage.h>

#include <iostream>
#include <limits>

int main() {
  at::Tensor logits = at::randn({4, 3});
  logits[1][0] = std::numeric_limits<float>::quiet_NaN();
  at::Tensor flags = triage::flag_nan_and_inf(logits, triage::Location("logits"));
  std::cout << triage::version() << " " << triage::flags::repr(flags) << "\n";
  return triage::has_err(flags) ? 0 : 1;
}
