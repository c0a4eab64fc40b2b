#pragma once
#include <ATen/core/Tensor.h>

namespace triage::capture {

/// A view of the whole tensor with an identity of its own that stands in the same place of autograd's graph: gradients
/// reach the tensor in the order in which they do where the script uses the tensor itself, and sum up to the same bits.
at::Tensor twin_of(const at::Tensor& tensor);

}  // namespace triage::capture
