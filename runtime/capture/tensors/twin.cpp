#include "runtime/capture/tensors/twin.h"

#include <ATen/ops/alias.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

namespace triage::capture {

at::Tensor twin_of(const at::Tensor& tensor) {
  const c10::AutoGradMode as_outside(true);  // under no_grad, an alias would forget requires_grad
  at::Tensor twin = at::alias(tensor);
  if (twin.requires_grad())
    torch::autograd::impl::set_gradient_edge(twin, torch::autograd::impl::gradient_edge(tensor));
  return twin;
}

}  // namespace triage::capture
