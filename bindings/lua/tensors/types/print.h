#pragma once
#include <ATen/core/Tensor.h>

#include <string>

namespace triage::lua {

/// What `tostring(x)` gives: the form PyTorch prints, `tensor([[1., 2.], [3., 4.]], dtype=torch.float64)`; tensors of
/// more than 1,000 elements with their edges only.
std::string to_text(const at::Tensor& tensor);

}  // namespace triage::lua
