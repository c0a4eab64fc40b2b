// Loads a policy and runs it on a batch with one bad sample.
#include <ATen/ATen.h>
#include <triage/triage.h>

#include <cmath>
#include <iostream>

int main() {
  triage::Runtime runtime;
  const triage::Policy policy = runtime.load_source(
      "return function(z) local f = flag_nan(z, 'in') return torch.nan_to_num(z, 0), f end", "repair.lua");
  const std::vector<at::Tensor> answer = policy.run({at::full({2, 3}, NAN)});
  std::cout << answer[0].sum().item<float>() << '\n';
}
