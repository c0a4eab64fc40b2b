#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace triage::capture {

/// `masked_scatter_` of a tensor that is not row-major puts elements in other places than `masked_scatter` of the same
/// tensor (LibTorch 1.13), and one that takes its elements from the tensor that it writes to takes some that it has
/// written. Where `op` is that, this computes the result with the form that returns it, writes it (both through `call`,
/// so that they are recorded), and returns true: scripts and graphs agree, whatever strides come later.
bool scatter_in_order(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace triage::capture
