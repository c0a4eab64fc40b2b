#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace triage::capture {

/// `nan_to_num` multiplies the gradient by 0 where it replaced an element: NaN where the gradient is not finite, and
/// that is what an element gets that `log` or a division behind it take. The argument then goes through a guard, which
/// makes it 0.
void guard_replaced_elements(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace triage::capture
