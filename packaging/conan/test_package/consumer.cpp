// Prints how many of three samples were bad.
#include <ATen/ATen.h>
#include <triage/triage.h>

#include <iostream>
#include <limits>

int main() {
  triage::Runtime runtime;
  const triage::Policy repair = runtime.load_source(
      "return policy {inputs = {'z'}, outputs = {'z', 'f'},\n"
      "  run = function(z) local f = flag_nan(z) return fix(z, f, 0.0) end}",
      "repair.lua");
  at::Tensor z = at::ones({3, 4});
  z[1][2] = std::numeric_limits<float>::quiet_NaN();
  const auto [repaired, flags] = repair.run<2>({z});
  std::cout << triage::err::is_err(flags).sum().item<int64_t>() << " of 3\n";
  return repaired.isfinite().all().item<bool>() ? 0 : 1;
}
